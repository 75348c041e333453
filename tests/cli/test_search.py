import json
from pathlib import Path

import pytest

from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, write_flags

SPEC = {"target": "a red white and green flag", "add": ["green"], "preserve": ["red"], "remove": ["blue"]}


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    write_flags(tmp_path / "p", SOME_FLAGS)
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    assert run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake").code == 0
    return tmp_path / "g"


def test_search_prints_a_ranking_with_its_reasons(gallery: Path, tmp_path: Path) -> None:
    done = run("search", "-g", gallery, "red-white-blue.png", "--spec", tmp_path / "spec.json", "-k", "3")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("Looking for a red white and green flag")
    assert "red-white-green.png" in lines[5]
    assert "encoder fake" in done.err
    assert "kernel" in done.err


def test_search_as_json_and_with_a_page(gallery: Path, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    done = run(
        "search", "-g", gallery, "red-white-blue.png", "--spec", tmp_path / "spec.json", "--json", "--explain", page,
        "--weights", "1,1,0.2,1", "--where", "id like 'red%'", "--keep-reference",
    )  # fmt: skip
    value = json.loads(done.out)
    assert value["hits"][0]["id"] == "red-white-green.png"
    assert len(value["hits"]) == 3
    assert done.err.splitlines()[-1] == f"report: {page}"  # last, where it is seen; plain, for it is no terminal
    assert "a red white and green flag" in page.read_text()


def test_an_edit_is_factorized_and_it_is_said_by_what(gallery: Path) -> None:
    done = run("search", "-g", gallery, "red-white-blue.png", "make it green", "--factorizer", "target-only", "--json")
    value = json.loads(done.out)
    assert value["factorizer"].startswith("target-only")
    assert value["spec"]["target"] == "make it green"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("none.png", "x"), "there is no file 'none.png'"),
        ((__file__, "x"), "test_search.py' is not a picture"),
        (("red.png",), "say what should be different"),
        (("red.png", "--spec", "none.json"), "cannot read the spec"),
        (("red.png", "x", "--weights", "1,2"), "cannot read the weights"),
        (("red.png", "x", "--where", "id ="), "cannot read the filter"),
        (("red.png", "x", "--where", "prise < 80"), "there is no column 'prise': the columns are id, path"),
        (("red.png", "x", "-k", "0"), "0"),
        (("red.png", "x", "--tau", "-1"), "tau"),
        (("red.png", "x", "--factorizer", "magic"), "magic"),
        (("red.png", "x", "--method", "image", "--tau", "5"), "the method image does not read tau"),
        (("red.png", "x", "--method", "sum", "--weights", "1,2,3,4"), "the method sum does not read weights"),
        (("red.png", "x", "--method", "basic", "--on-failure", "error"), "the method basic does not read factorizer"),
        (("red.png", "x", "--method", "image", "--reference-weight", "0.5"), "does not read reference_weight"),
        (("red.png", "x", "--method", "image", "--score", "fixed"), "the method image does not read score"),
        (("red.png", "x", "--method", "target", "--explain", "y.html"), "the method target"),
        (("red.png", "x", "--explain", "/no/such/folder/x.html"), "no folder"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(gallery: Path, arguments: tuple[str, ...], reason: str) -> None:
    done = run("search", "-g", gallery, *arguments)
    assert done.code == 2
    assert reason in done.err
    assert done.err.count("\n") == 1


def test_a_folder_without_a_gallery_is_said(tmp_path: Path) -> None:
    done = run("search", "-g", tmp_path, "x.png", "y")
    assert done.code == 2
    assert "is not a gallery: make one with tapr index" in done.err


def test_a_gallery_without_pictures_is_said_not_searched(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "broken.png").write_bytes(b"broken")
    run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    done = run("search", "-g", tmp_path / "g", "x.png", "y")
    assert done.code == 2
    assert "has no pictures yet: let tapr index" in done.err
