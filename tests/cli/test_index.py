import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.fake import FakeEncoder
from tapr.images.frame import Frame
from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, flag, png, write_flags


def test_index_says_what_it_did_and_lists_bad_files(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    (tmp_path / "p" / "bad.png").write_bytes(b"no")
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    assert done.code == 0
    assert "10 encoded" in done.out
    assert "10 pictures" in done.out
    assert "bad.png is not a picture" in done.out
    assert "Indexing 11 pictures (up to " in done.err  # the expected size, before the work
    assert "11 unchanged" in run("index", "-g", tmp_path / "g").out


def test_a_file_that_breaks_the_encoder_is_that_file_s_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    (tmp_path / "p" / "thin.png").write_bytes(png(flag("red", size=(7_000, 1))))
    (tmp_path / "p" / "odd.png").write_bytes(png(flag("red", size=(5, 7))))
    start = FakeEncoder.__init__

    def without_frame(self: FakeEncoder, fit: str) -> None:
        start(self, fit=fit)
        self.frame = None  # type: ignore[assignment]  # pictures are then prepared by the encoder itself

    def fails_on_one(self: FakeEncoder, image: Image.Image) -> NDArray[np.uint8]:
        if image.size == (5, 7):
            raise ZeroDivisionError
        return Frame(32).apply(image)

    monkeypatch.setattr(FakeEncoder, "__init__", without_frame)
    monkeypatch.setattr(FakeEncoder, "prepare", fails_on_one)
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    assert done.code == 0
    assert "11 encoded" in done.out  # the thin one too
    assert "odd.png cannot be prepared (ZeroDivisionError)" in done.out


def test_index_as_json(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake", "--precision", "both", "--json")
    value = json.loads(done.out)
    assert value["encoded"] == value["pictures"] == 10
    assert value["failures"] == []
    assert value["encoder"]["name"] == "fake"


def test_index_says_the_types_of_columns_and_the_cell_that_spoils_one(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",), ("blue",), ("green",)])
    (tmp_path / "t.csv").write_text("path,price,new\nred.png,19.90,true\nblue.png,120,false\ngreen.png,n/a,true\n")
    arguments = ("index", tmp_path / "t.csv", "-g", tmp_path / "g", "--encoder", "fake")
    done = run(*arguments)
    assert "columns: new boolean, price text" in done.out
    assert "price is text: 2 are numbers, but one is 'n/a'" in done.out
    refused = run(*arguments, "--column", "price=number")
    assert refused.code == 2
    assert "t.csv, line 4: the column 'price' is declared a number, and 'n/a' is not a number" in refused.err
    (tmp_path / "t.csv").write_text("path,price,new\nred.png,19.90,true\nblue.png,120,false\ngreen.png,,true\n")
    value = json.loads(run(*arguments, "--column", "new=text", "--json").out)
    assert value["columns"] == [
        {"name": "new", "type": "text", "declared": True, "note": ""},
        {"name": "price", "type": "number", "declared": False, "note": ""},
    ]
    found = run("search", "-g", tmp_path / "g", "red.png", "x", "--factorizer", "target-only", "--json",
                "--where", "price < 80 and new = 'true'", "--keep-reference")  # fmt: skip
    assert [hit["id"] for hit in json.loads(found.out)["hits"]] == ["red.png"]
    for declaration in ("price", "=number", "price=money", "prise=number"):
        assert run(*arguments, "--column", declaration).code == 2


def test_what_was_left_out_is_listed(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    write_flags(tmp_path / "elsewhere", [("blue",)])
    (tmp_path / "p" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    assert "1 file or folder left out:" in done.out
    assert f"link is a link to a folder, which is not followed: index '{tmp_path / 'elsewhere'}' too" in done.out


def test_a_source_that_is_away_is_a_warning_and_can_be_moved_or_dropped(tmp_path: Path) -> None:
    write_flags(tmp_path / "a", [("red",), ("blue",)])
    run("index", tmp_path / "a", "-g", tmp_path / "g", "--encoder", "fake")
    listed = run("sources", "-g", tmp_path / "g")
    assert listed.out == f"{tmp_path / 'a'}: 2 pictures\n"
    (tmp_path / "a").rename(tmp_path / "b")
    done = run("index", "-g", tmp_path / "g")
    assert done.code == 0
    assert "2 kept (source unavailable)" in done.out
    said = " ".join(done.err.split())
    assert f"there is no file or folder '{tmp_path / 'a'}'; 2 pictures of it kept" in said
    assert f"tapr sources -g {tmp_path / 'g'} --move {tmp_path / 'a'} NEW" in said
    rows = json.loads(run("sources", "-g", tmp_path / "g", "--json").out)["sources"]
    assert rows[0]["problem"] == f"there is no file or folder '{tmp_path / 'a'}'"
    moved = run("sources", "-g", tmp_path / "g", "--move", tmp_path / "a", tmp_path / "b")
    assert moved.code == 0
    assert "2 renamed" in moved.out
    assert not moved.err
    write_flags(tmp_path / "c", [("green",)])
    run("index", tmp_path / "c", "-g", tmp_path / "g")
    assert "2 removed" in run("sources", "-g", tmp_path / "g", "--drop", tmp_path / "b").out
    assert run("sources", "-g", tmp_path / "g").out == f"{tmp_path / 'c'}: 1 picture\n"
    refused = run("sources", "-g", tmp_path / "g", "--drop", tmp_path / "b")
    assert refused.code == 2
    assert "is not a source of the gallery" in refused.err


def test_mistakes_exit_with_2_and_one_line(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    (tmp_path / "none here").mkdir()
    mistakes = [
        (("index", tmp_path / "none", "-g", tmp_path / "h", "--encoder", "fake"), "there is no file or folder"),
        (("index", tmp_path / "p", "-g", tmp_path / "h", "--encoder", "nonsense"), "nonsense"),
        (("index", tmp_path / "p"), "--gallery"),
        (("index", tmp_path / "p", "-g", tmp_path / "g", "--precision", "int8"), "made with precision 'fp16'"),
        (("index", tmp_path / "p", "-g", tmp_path / "g", "--precision", "fp4"), "fp4"),
        (("index", tmp_path / "p", "-g", tmp_path / "p"), "is not a gallery"),
        (("index", "-g", tmp_path / "new", "--encoder", "fake"), "no pictures were named"),
        (("index", tmp_path / "none here", "-g", tmp_path / "h", "--encoder", "fake"), "there are no pictures in"),
        (("indexx",), "there is no command"),
    ]
    for arguments, reason in mistakes:
        done = run(*arguments)
        assert done.code == 2, arguments
        assert reason in done.err
        assert done.err.count("\n") == 1
        assert "Traceback" not in done.err
