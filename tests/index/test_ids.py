"""Ids of pictures that nobody gave one: stable, and silent about where files lie."""

import json
from pathlib import Path

import pytest

from tapr.index.ids import hidden_id, id_below
from tests.index.test_sources import ids
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
