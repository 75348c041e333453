import json
from pathlib import Path

from tests.commands.terminal import run
from tests.pictures import SOME_FLAGS, write_flags


def test_index_says_what_it_did_and_lists_bad_files(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    (tmp_path / "p" / "bad.png").write_bytes(b"no")
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    assert done.code == 0
    assert "10 encoded" in done.out
    assert "10 pictures" in done.out
    assert "bad.png is not a picture" in done.out
    assert "11 pictures to look at" in done.err  # the expected size, before the work
    assert "11 unchanged" in run("index", "-g", tmp_path / "g").out


def test_index_as_json(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake", "--precision", "both", "--json")
    value = json.loads(done.out)
    assert value["encoded"] == value["pictures"] == 10
    assert value["failures"] == []
    assert value["encoder"]["name"] == "fake"


def test_mistakes_exit_with_2_and_one_line(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    mistakes = [
        (("index", tmp_path / "none", "-g", tmp_path / "h", "--encoder", "fake"), "there is no file or folder"),
        (("index", tmp_path / "p", "-g", tmp_path / "h", "--encoder", "nonsense"), "nonsense"),
        (("index", tmp_path / "p"), "--gallery"),
        (("index", tmp_path / "p", "-g", tmp_path / "g", "--precision", "int8"), "made with precision 'fp16'"),
        (("index", tmp_path / "p", "-g", tmp_path / "g", "--precision", "fp4"), "fp4"),
        (("index", tmp_path / "p", "-g", tmp_path / "p"), "is not a gallery"),
        (("index", "-g", tmp_path / "new", "--encoder", "fake"), "no pictures were named"),
        (("indexx",), "No such command"),
    ]
    for arguments, reason in mistakes:
        done = run(*arguments)
        assert done.code == 2, arguments
        assert reason in done.err
        assert done.err.count("\n") == 1
        assert "Traceback" not in done.err
