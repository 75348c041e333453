"""Ids of pictures that nobody gave one: stable, and silent about where files lie."""

import json
from pathlib import Path

import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.index.ids import hidden_id, id_below
from tests.gallery.test_changes import NeverAgain
from tests.gallery.test_sources import ids
from tests.pictures import write_flags


@pytest.mark.parametrize(
    ("path", "folder", "id_"),
    [
        ("/shop/a/red.png", "/shop", "a/red.png"),
        ("/shop/red.png", "/shop", "red.png"),
        ("/else/red.png", "/shop", hidden_id("/else/red.png")),
        ("/shop2/red.png", "/shop", hidden_id("/shop2/red.png")),
        ("/shop/..red.png", "/shop", "..red.png"),
    ],
)
def test_the_path_below_the_table_or_a_hash(path: str, folder: str, id_: str) -> None:
    assert id_below(path, folder) == id_


def test_the_hash_is_fixed_and_keeps_the_name() -> None:
    assert hidden_id("/else/red.png") == "6f6ab6f7f4b3/red.png"
    assert hidden_id("/a/red.png") != hidden_id("/b/red.png")


def test_rows_of_tables_and_lists_never_show_an_absolute_path(tmp_path: Path) -> None:
    below, away = write_flags(tmp_path / "t" / "a", [("red",)]) + write_flags(tmp_path / "other", [("blue",)])
    rows = [{"path": str(below)}, {"path": str(away)}]
    (tmp_path / "t" / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "t" / "t.csv").write_text("path\n./a/red.png\n../other/blue.png\n")
    (tmp_path / "t" / "t.txt").write_text(f"{below}\n{away}\n")
    for name in ("t.jsonl", "t.csv", "t.txt"):
        assert ids(tmp_path / "t" / name) == ["a/red.png", hidden_id(str(away))]


def test_the_third_of_the_same_name_gets_a_hash(tmp_path: Path) -> None:
    folders = [tmp_path / name / "same" for name in "abc"]
    third = [write_flags(folder, [("red",)]) for folder in folders][2][0]
    assert ids(*folders) == ["red.png", "same/red.png", hidden_id(str(third))]


def with_paths_as_ids(folder: Path) -> Gallery:
    """As an older tapr left it: a table of absolute paths without ids, and a gallery whose ids are the paths."""
    paths = write_flags(folder / "pictures", [("red",), ("blue",)])
    table = folder / "t.jsonl"
    table.write_text("".join(json.dumps({"path": str(path), "id": str(path)}) + "\n" for path in paths))
    Gallery.build(folder / "g", table, FakeEncoder())
    table.write_text("".join(json.dumps({"path": str(path)}) + "\n" for path in paths))
    return Gallery.open(folder / "g", encoder=NeverAgain())


def test_ids_that_were_paths_are_migrated_by_the_next_run_and_told(tmp_path: Path) -> None:
    gallery = with_paths_as_ids(tmp_path)
    assert gallery.ids_that_are_paths() == 2

    class Told:
        def __init__(self) -> None:
            self.said: list[str] = []

        def say(self, sentence: str) -> None:
            self.said.append(sentence)

        def start(self, total: int, what: str) -> None: ...
        def advance(self, done: int) -> None: ...

    told = Told()
    gallery.sync(progress=told)
    assert gallery.ids() == ["pictures/red.png", "pictures/blue.png"]
    assert gallery.ids_that_are_paths() == 0
    assert told.said == ["2 pictures had the path of the file as id, and get one without it: see docs/where.md"]


def test_also_where_the_table_is_away(tmp_path: Path) -> None:
    gallery = with_paths_as_ids(tmp_path)
    (tmp_path / "t.jsonl").unlink()
    gallery.sync()
    assert gallery.ids() == [hidden_id(str(tmp_path / "pictures" / f"{colour}.png")) for colour in ("red", "blue")]
