import json
import os
from pathlib import Path

import pytest

from tapr import BadInput, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.index.sources import find
from tests.pictures import write_flags


def ids(*sources: Path | str) -> list[str]:
    return [candidate.id for candidate in find([str(source) for source in sources]).with_unique_ids(())]


def test_a_folder_gives_its_pictures_in_order_with_relative_ids(tmp_path: Path) -> None:
    write_flags(tmp_path / "b", [("red",)])
    write_flags(tmp_path, [("blue",), ("green",)])
    write_flags(tmp_path / ".hidden", [("red",)])
    (tmp_path / "notes.txt").write_text("hello")
    found = find([str(tmp_path)])
    assert [candidate.id for candidate in found.candidates] == ["blue.png", "green.png", "b/red.png"]
    assert found.skipped == [str(tmp_path / "notes.txt")]


def test_linked_folders_are_not_followed_but_told(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",)])
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    found = find([str(tmp_path)])
    assert [candidate.id for candidate in found.candidates] == ["red.png"]
    ((path, reason),) = found.left_out
    assert path == str(tmp_path / "loop")
    assert "link to a folder" in reason


def test_names_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",)])
    os.mkdir(os.fsencode(tmp_path) + b"/fol\xffder")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9d.png")).write_bytes((tmp_path / "red.png").read_bytes())
    found = find([str(tmp_path)])
    assert [candidate.id for candidate in found.candidates] == ["red.png"]
    assert found.skipped == []
    assert [Path(path).name for path, _ in found.left_out] == ["fol\\udcffder", "r\\udce9d.png"]
    assert all("not UTF-8" in reason for _, reason in found.left_out)
    assert [path for path, _ in find([str(tmp_path / "*.png")]).left_out] == [found.left_out[1][0]]


def test_globs_lists_and_single_files(tmp_path: Path) -> None:
    paths = write_flags(tmp_path / "a", [("red",), ("blue",)])
    assert ids(tmp_path / "a" / "*.png") == ["blue.png", "red.png"]
    assert ids(paths[0]) == ["red.png"]
    (tmp_path / "some.txt").write_text("a/red.png\n\n")
    assert ids(tmp_path / "some.txt") == ["a/red.png"]
    nothing = str(tmp_path / "*.jpg")
    assert find([nothing]).empty == {nothing: f"no file matches {nothing!r}"}


def test_tables_carry_metadata(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",), ("blue",)])
    (tmp_path / "t.csv").write_text("path,id,class,price,code,empty\nred.png,7,dress,12,007,\n", encoding="utf-8-sig")
    (tmp_path / "t.jsonl").write_text(json.dumps({"image": "blue.png", "tags": ["a"], "new": True}) + "\n")
    red, blue = find([str(tmp_path / "t.csv"), str(tmp_path / "t.jsonl")]).candidates
    assert (red.id, red.path) == ("7", str(tmp_path / "red.png"))
    assert red.metadata == {"class": "dress", "price": 12, "code": "007"}
    assert blue.metadata == {"tags": ["a"], "new": True}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("t.csv", "name\nred\n", "no path"),
        ("t.csv", "path\nred.png,1\n", "more values than columns"),
        ("t.jsonl", "{", "line 1: not valid JSON"),
        ("t.jsonl", "[1]", "must be a JSON object"),
        ("t.txt", "\xff", "not UTF-8"),
    ],
)
def test_broken_tables_are_refused_with_their_line(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match=reason):
        find([str(tmp_path / name)])


def test_two_folders_with_the_same_names_stay_apart(tmp_path: Path) -> None:
    write_flags(tmp_path / "one", [("red",)])
    write_flags(tmp_path / "two", [("red",)])
    assert ids(tmp_path / "one", tmp_path / "two") == ["red.png", "two/red.png"]
    assert ids(tmp_path / "one", tmp_path / "one" / "red.png") == ["red.png"]  # the same file once


def test_sources_that_give_nothing_are_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.doc").write_text("x")
    sources = ["/no/such", str(tmp_path / "notes.txt"), str(tmp_path / "none")]
    reasons = find(sources).empty
    assert list(reasons) == sources
    assert [reason.split("'")[0] for reason in reasons.values()] == [
        "there is no file or folder ", "", "there are no pictures in the folder "
    ]  # fmt: skip


def test_a_folder_that_is_a_file_now_takes_nothing_along(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    (tmp_path / "p").rename(tmp_path / "moved")
    (tmp_path / "p").write_bytes(b"not a picture")
    report = gallery.sync()
    assert (report.removed, report.kept, len(gallery)) == (0, 2, 2)
    assert [source for source, _ in report.away] == [str(tmp_path / "p")]
    with pytest.raises(BadInput, match="nothing was changed"):
        gallery.sync(tmp_path / "p")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe_without_a_suffix_is_no_picture(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert ids(tmp_path) == []


def test_content_that_changed_under_the_same_size_and_time(tmp_path: Path) -> None:
    (file,) = write_flags(tmp_path / "p", [("red",)])
    data = file.read_bytes()
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    before = file.stat()
    file.write_bytes(data[:-4] + bytes(4))  # bytes after the picture's end
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert gallery.sync().unchanged == 1
    assert gallery.sync(rehash=True).encoded == 1
    report = gallery.sync(rehash=True)
    assert (report.encoded, report.unchanged) == (0, 1)
