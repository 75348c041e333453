"""What the system or a file refuses is one sentence, exit 1 or 2, and nothing is lost."""

import errno
import json
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapr import BadInput, Gallery, TaprError
from tapr.encoders.fake import FakeEncoder
from tapr.store import layout
from tapr.store.verify import verify
from tests.cli.terminal import Done, run
from tests.pictures import flag, png, write_flags

NUMBER = "1" + "0" * 400


def one_sentence(done: Done, code: int) -> str:
    assert done.code == code, done
    (line,) = [line for line in done.err.splitlines() if line.startswith("tapr: ")]
    assert "Traceback" not in done.err
    return line


@pytest.fixture
def built(tmp_path: Path) -> Path:
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    return tmp_path / "g"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".lock")}


# the system


def fails(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int, suffix: str) -> None:
    """Calls for files with this ending fail as the system would let them."""
    whole: Callable[..., Any] = getattr(module, name)

    def call(path: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(path, int) and os.fspath(path).endswith(suffix):
            raise OSError(number, os.strerror(number), os.fspath(path))
        return whole(path, *rest, **options)

    monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_file_that_cannot_be_written_stops_an_index_run_with_a_sentence(
    built: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(built)
    write_flags(built.parent / "p", [("green",)])
    with monkeypatch.context() as patch:
        fails(patch, os, "replace", number, "catalog-2.sqlite.new")
        said = one_sentence(run("index", "-g", built), 1)
    assert os.strerror(number).lower() in said
    assert "run tapr index again" in said
    assert {name: data for name, data in files(built).items() if name in before} == before
    assert len(Gallery.open(built)) == 2
    assert run("index", "-g", built).code == 0
    assert len(Gallery.open(built)) == 3


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_to(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(tmp_path / "p", [("red",)])
    with monkeypatch.context() as patch:
        fails(patch, os, "mkdir", number, "g")
        said = one_sentence(run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake"), 1)
    assert os.strerror(number).lower() in said
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    fails(monkeypatch, os, "open", number, ".lock")
    assert "choose a folder that you may write to" in one_sentence(run("index", "-g", tmp_path / "g"), 2)


def test_files_that_may_not_be_read(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    for name, code in (("manifest.json", 2), ("catalog-1.sqlite", 1), ("global-0-00000.npy", 1)):
        os.chmod(built / name, 0)
        assert name in one_sentence(run("search", "-g", built, built.parent / "p" / "red.png", "x"), code)
        os.chmod(built / name, 0o644)


def test_a_catalogue_that_another_program_locks(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database browser on the draft of a run that was stopped."""
    monkeypatch.setattr("tapr.store.connection.LOCK_SECONDS", 0.05)
    write_flags(built.parent / "p", [("green",)])

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tapr.index.run.compact", stopped)
        with pytest.raises(KeyboardInterrupt):
            Gallery.build(built, built.parent / "p", FakeEncoder())
    browser = sqlite3.connect(built / "catalog-2.sqlite", isolation_level=None)
    browser.execute("BEGIN EXCLUSIVE")
    try:
        said = one_sentence(run("index", "-g", built), 1)
    finally:
        browser.close()
    assert "locked" in said
    assert len(Gallery.open(built)) == 2
    assert run("index", "-g", built).code == 0
    assert len(Gallery.open(built)) == 3


def test_a_folder_that_a_glob_cannot_list_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(tmp_path / "p" / "one", [("red",)])
    write_flags(tmp_path / "p" / "two", [("blue",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p" / "*" / "*.png", FakeEncoder())
    assert len(gallery) == 2
    with monkeypatch.context() as patch:
        fails(patch, os, "scandir", errno.EACCES, "two")
        report = gallery.sync()
    assert (report.kept, report.removed) == (1, 0)
    assert [folder for folder, _ in report.left_out] == [str(tmp_path / "p" / "two")]
    assert len(gallery) == 2
    (tmp_path / "p" / "two" / "blue.png").unlink()
    assert gallery.sync().removed == 1


# tables

TABLES: dict[str, tuple[str | bytes, str]] = {
    "surrogates.jsonl": ('{"path": "red.png", "x": "\\ud800"}', "line 1: half of a surrogate pair"),
    "names.jsonl": ('{"path": "red.png", "\\ud800": 1}', "line 1: half of a surrogate pair"),
    "nul.jsonl": ('{"path": "a\\u0000b.png"}', "line 1: the path holds a zero character"),
    "nul-id.jsonl": ('{"path": "red.png", "id": "a\\u0000b"}', "line 1: the id holds a zero character"),
    "nul.txt": ("a\0b.png", "line 1: the path holds a zero character"),
    "deep.jsonl": ('{"path": "red.png", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1: not valid JSON"),
    "deep900.jsonl": ('{"path": "red.png", "x": ' + "[" * 900 + "]" * 900 + "}", "line 1: nested too deeply"),
    "digits.jsonl": ('{"path": "red.png", "x": ' + "9" * 5000 + "}", "line 1: not valid JSON"),
    "cell.csv": ("path,x\nred.png," + "y" * (2**24 + 1), "line 1: not valid CSV (field larger than"),
    "latin1.csv": (b"path,x\nred.png,\xff\n", "is not UTF-8 text"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_used_is_one_sentence_and_leaves_the_gallery(built: Path, name: str) -> None:
    content, said = TABLES[name]
    table = built.parent / "p" / name
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = files(built)
    assert said in one_sentence(run("index", table, "-g", built), 2)
    assert files(built) == before


def test_long_cells_large_numbers_and_zero_characters_are_only_values(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",), ("blue",)])
    (tmp_path / "t.csv").write_text(f"path,x\nred.png,{'y' * 200_000}\nblue.png,a\0b\n")
    gallery = Gallery.build(tmp_path / "g", tmp_path / "t.csv", FakeEncoder())
    assert [len(str(entry.metadata["x"])) for entry in gallery.entries([0, 1])] == [200_000, 3]
    (tmp_path / "t.jsonl").write_text(f'{{"path": "red.png", "n": {NUMBER}}}\n{{"path": "blue.png", "n": -{NUMBER}}}\n')
    numbers = Gallery.build(tmp_path / "h", tmp_path / "t.jsonl", FakeEncoder())
    assert numbers.select("n > 5").ids() == ["red.png"]
    assert numbers.select("n < 5").ids() == ["blue.png"]


def test_ids_with_control_characters_may_change_places(tmp_path: Path) -> None:
    """What stands for an id for a while is no id that a table can give."""
    write_flags(tmp_path, [("red",), ("blue",)])
    table = tmp_path / "t.jsonl"
    rows = [{"path": "red.png", "id": "\x012"}, {"path": "blue.png", "id": "b"}]
    table.write_text("\n".join(map(json.dumps, rows)))
    gallery = Gallery.build(tmp_path / "g", table, FakeEncoder())
    rows[1]["id"] = "c"
    (tmp_path / "blue.png").write_bytes(png(flag("blue", "white")))
    table.write_text("\n".join(map(json.dumps, rows)))
    gallery.sync()
    assert gallery.ids() == ["\x012", "c"]


def test_a_file_whose_name_is_not_utf8_is_left_out_by_name(tmp_path: Path) -> None:
    (red,) = write_flags(tmp_path, [("red",)])
    odd = tmp_path / os.fsdecode(b"b\xff.png")
    odd.write_bytes(red.read_bytes())
    assert "names no pictures" in one_sentence(run("index", odd, "-g", tmp_path / "g", "--encoder", "fake"), 2)
    gallery = Gallery.build(tmp_path / "g", red, FakeEncoder())
    report = Gallery.build(tmp_path / "g", [tmp_path / "*.png"], FakeEncoder()).report
    assert report is not None
    assert [reason for _, reason in report.left_out] == ["has a name that is not UTF-8: rename it"]
    assert len(gallery) == 1


@pytest.mark.parametrize("name", ["y" * 5000, "a\0b"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    (red,) = write_flags(tmp_path, [("red",)])
    with pytest.raises(TaprError, match=r"too long|zero character"):
        Gallery.build(name, red, FakeEncoder())
    with pytest.raises(BadInput, match=r"no file or folder|zero character|cannot read"):
        Gallery.open(tmp_path / name if "\0" not in name else name)
    with pytest.raises(BadInput, match="no file or folder"):
        Gallery.build(tmp_path / "g", name, FakeEncoder())
    assert not (tmp_path / "g").exists()


# manifests

CARD = FakeEncoder().card.to_dict()
MANIFESTS: dict[str, tuple[Any, str]] = {
    "deep": ("[" * 100_000, "it is not JSON"),
    "empty": ("", "it is not JSON"),
    "digits": ('{"format_version": ' + "1" * 6000 + "}", "it is not JSON"),
    "null": ("null", "format version None"),
    "older": ({"format_version": 6}, "format version 6"),
    "newer": ({"format_version": 8}, "format version 8"),
    "a version of too many digits": ({"format_version": 10**400}, "format version 1000"),
    "a key too many": ({"x": 1}, "'x': Extra inputs"),
    "a key too few": ({"precision": None}, "'precision'"),
    "no card": ({"encoder": {}}, "'encoder'.*it lacks arithmetic, dim"),
    "a card too many": ({"encoder": {**CARD, "zz": 1}}, "'encoder'.*it must not have zz"),
    "an odd grid": ({"encoder": {**CARD, "grid": [0, 3]}}, "'encoder'.*grid"),
    "no rows": ({"shard_rows": 0}, "'shard_rows'"),
    "before the first": ({"snapshot": -1}, "'snapshot'"),
    "a short mean": ({"image_mean": [1.0]}, "a mean has not as many"),
    "a mean that is no number": ({"image_mean": [float("nan")] * 32}, "'image_mean.0'"),
    "no id": ({"gallery_id": None}, "'gallery_id'"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_cannot_be_used_is_one_sentence_and_nothing_is_touched(built: Path, name: str) -> None:
    change, said = MANIFESTS[name]
    manifest = built / "manifest.json"
    if not isinstance(change, str):
        value = {key: kept for key, kept in (json.loads(manifest.read_text()) | change).items() if kept is not None}
        value.pop("sha256")
        change = json.dumps({**value, "sha256": layout._sum_of(value)})
    manifest.write_text(change)
    before = files(built)
    code = 2 if said.startswith("format version") else 1  # another tapr's is bad use, damage is a failure
    for command in (("index",), ("repair",), ("sources",)):
        line = one_sentence(run(*command, "-g", built), code)
        assert re.search(said, line), line
        assert len(line) < 400 + len(str(built))
    for options in ((), ("--verify",)):
        done = run("doctor", *options, "-g", built)
        assert done.code == code  # as its help says
        assert re.search(said, done.out + done.err)
    assert files(built) == before


# the verbs


def test_doctor_and_repair_on_the_command_line(built: Path) -> None:
    assert "4 files" not in run("doctor", "-g", built).out
    done = run("doctor", "--verify", "-g", built)
    assert (done.code, "3 files with 2 rows: all as written" in done.out) == (0, True)
    whole = files(built)
    (built / "global-0-00000.npy").unlink()
    assert run("doctor", "-g", built).code == 1
    done = run("doctor", "--verify", "-g", built)
    assert done.code == 1
    assert "global-0-00000.npy: is missing: rows 0 to 1; tapr repair -g" in done.out
    assert "2 pictures damaged: blue.png, red.png" in done.out
    told = run("doctor", "--verify", "-g", built, "--json")
    assert told.code == 1
    assert json.loads(told.out)["verified"]["pictures"] == ["blue.png", "red.png"]
    done = run("repair", "-g", built)
    assert (done.code, "1 file mended: 2 pictures encoded again" in done.out) == (0, True)
    assert files(built) == whole
    assert "nothing to repair" in run("repair", "-g", built).out
    (built.parent / "p" / "red.png").unlink()
    (built / "local-0-00000.npy").unlink()
    done = run("repair", "-g", built)
    assert done.code == 1
    assert "red.png cannot be read: no such file or directory" in done.out
    (built / "local-0-00000.npy").unlink()
    value = json.loads(run("repair", "-g", built, "--json").out)
    assert (value["encoded"], value["pictures"], value["lost"]) == (1, 1, [])
    assert not verify(built).damage
    assert one_sentence(run("doctor", "--verify"), 2) == "tapr: --verify needs a gallery: name it with -g"


def test_a_repair_waits_for_no_index_run(built: Path) -> None:
    from tapr.store.lock import writer_lock

    with writer_lock(built):
        assert "is writing to" in one_sentence(run("repair", "-g", built, "--wait", "0"), 2)
