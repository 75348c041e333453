import json
from pathlib import Path
from typing import Any

import pytest

from tapr import BadInput, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.store.column_statistics import columns_of
from tapr.store.columns import Column, column_of_texts, comparable_date
from tests.pictures import write_flags


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["19.90", "120", "-3", "1e3", ".5"], [19.9, 120, -3, 1000.0, 0.5]),
        (["12", "nan", "-inf", "Infinity"], [12, None, None, None]),
        (["nan", "naan"], ["nan", "naan"]),  # bread
        (["nan"], ["nan"]),
        (["007", "8"], ["007", "8"]),
        (["1234567890123456789012"], ["1234567890123456789012"]),
        (["1,234"], ["1,234"]),
        (["1e999", "1"], ["1e999", "1"]),
        (["true", "FALSE"], [True, False]),
        (["true", "1"], ["true", "1"]),
        ([" 5 ", "6"], [5, 6]),
        ([" five ", "6"], [" five ", "6"]),
        ([], []),
    ],
)
def test_cells_of_a_csv_are_what_all_of_them_are(texts: list[str], values: list[Any]) -> None:
    got = column_of_texts(texts)
    assert got == values
    assert [type(value) for value in got] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, 2.5, None], Column("c", "number")),
        ([True, False], Column("c", "boolean")),
        (["2024-05-31", "2024-05-31 10:00"], Column("c", "date")),
        (["2024-05-31", "soon"], Column("c", "text")),
        (["12", "13"], Column("c", "text")),  # JSON says its types itself
        ([["a"], {"b": 1}], Column("c", "text")),
        ([1, 2, "n/a"], Column("c", "text", note="2 are numbers, but one is 'n/a'")),
        ([True, 1, 2], Column("c", "text", note="2 are numbers, but one is True")),
    ],
)
def test_a_column_has_the_type_of_all_its_values(values: list[Any], column: Column) -> None:
    assert columns_of([{"c": value} for value in values], {}) == {"c": column}


def test_dates_sort_as_text_and_impossible_ones_are_none() -> None:
    moments = ["2023-12-31", "2024-05-31", "2024-05-31 10:00", "2024-05-31T10:00:00.5", "2024-05-31T10:00:01"]
    comparable = [comparable_date(text) for text in moments]
    assert comparable == sorted(map(str, comparable))
    assert comparable_date("2024-05-31T10:00+02:00") == comparable_date("2024-05-31 08:00Z")
    for text in ("2024-02-31", "20240531", "2024-W01-1", "31.5.2024", "2024", "0001-01-01T00:00+02:00"):
        assert comparable_date(text) is None


def build(folder: Path, table: str, name: str = "t.csv", **options: Any) -> Gallery:
    write_flags(folder, [("red",), ("blue",), ("green",)])
    (folder / name).write_text(table, encoding="utf-8", newline="")
    return Gallery.build(folder / "g", folder / name, FakeEncoder(), **options)


def test_prices_with_cents_are_numbers_and_true_is_true(tmp_path: Path) -> None:
    gallery = build(tmp_path, "path,price,new\nred.png,19.90,true\nblue.png,120,false\ngreen.png,79.5,\n")
    assert gallery.select("price < 80").ids() == ["red.png", "green.png"]
    assert gallery.select("price > 80").ids() == ["blue.png"]
    assert gallery.select("new = true").ids() == ["red.png"]
    assert [entry.metadata for entry in gallery.entries([0, 2])] == [{"price": 19.9, "new": True}, {"price": 79.5}]


@pytest.mark.parametrize("bad", ["nan", "NaN", "inf", "-Infinity"])
def test_a_cell_that_is_no_finite_number_is_empty_and_breaks_nothing(tmp_path: Path, bad: str) -> None:
    gallery = build(tmp_path, f"path,price\nred.png,{bad}\nblue.png,12\ngreen.png,99\n")
    assert gallery.select("price < 80").ids() == ["blue.png"]
    assert gallery.select("price is null").ids() == ["red.png"]
    json.dumps([entry.metadata for entry in gallery.entries(range(3))], allow_nan=False)


def test_nan_in_a_jsonl_table_is_no_value(tmp_path: Path) -> None:
    rows = [{"path": "red.png", "price": float("nan"), "l": [float("inf"), 1]}, {"path": "blue.png", "price": 3}]
    gallery = build(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "t.jsonl")
    assert gallery.select("price < 80").ids() == ["blue.png"]
    assert gallery.entries([0])[0].metadata == {"l": [None, 1]}


def test_a_declared_type_wins(tmp_path: Path) -> None:
    table = "path,zip,price:number,since:text\nred.png,12345,1,2024-01-01\nblue.png,23456,,2024-01-02\n"
    gallery = build(tmp_path, table, columns={"zip": "text"})
    assert {column.name: (column.type, column.declared) for column in gallery.columns()} == {
        "zip": ("text", True), "price": ("number", True), "since": ("text", True)
    }  # fmt: skip
    assert gallery.select("zip = '12345' and price = 1").ids() == ["red.png"]
    assert gallery.sync().unchanged == 2  # and it stays so
    assert gallery.select("zip = '12345'").ids() == ["red.png"]
    gallery.sync(columns={"zip": "auto"})
    assert gallery.select("zip = 12345").ids() == ["red.png"]


@pytest.mark.parametrize(
    ("table", "name", "columns", "sentence"),
    [
        (
            "path,price:number\nred.png,1\nblue.png,n/a\n",
            "t.csv",
            {},
            "line 3: .*'price' is declared a number, and 'n/a'",
        ),
        ('{"path": "red.png", "new": 1}\n', "t.jsonl", {"new": "boolean"}, "line 1: .*declared a boolean, and 1"),
        ("path,price\nred.png,1\n", "t.csv", {"prise": "number"}, "no column 'prise'.*the columns are price"),
        ("path,price\nred.png,1\n", "t.csv", {"price": "money"}, "cannot be a 'money': choose number"),
    ],
)
def test_a_declaration_that_does_not_hold_is_refused(
    tmp_path: Path, table: str, name: str, columns: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        build(tmp_path, table, name, columns=columns)


def test_types_follow_the_table(tmp_path: Path) -> None:
    gallery = build(tmp_path, "path,price\nred.png,19.90\nblue.png,2\ngreen.png,3\n")
    (tmp_path / "t.csv").write_text("path,price\nred.png,19.90\nblue.png,2\ngreen.png,n/a\n")
    report = gallery.sync()
    assert report.columns == [Column("price", "text", note="2 are numbers, but one is 'n/a'")]
    assert gallery.select("price = '19.90'").ids() == ["red.png"]
    (tmp_path / "t.csv").write_text("path,price\nred.png,19.90\nblue.png,2\ngreen.png,3\n")
    assert gallery.sync().columns == [Column("price", "number")]


def test_line_breaks_and_separators_inside_cells_break_no_rows(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\x1cfour"
    csv = f'path,note\r\nred.png,"two\nlines, {text}"\r\nblue.png,plain\r\n'
    gallery = build(tmp_path, csv)
    assert gallery.entries([0])[0].metadata == {"note": f"two\nlines, {text}"}
    rows = [{"path": "green.png", "note": text}, {"path": "red.png"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows))
    gallery.sync([tmp_path / "t.jsonl"])
    assert gallery.find("green.png").metadata == {"note": text}  # type: ignore[union-attr]
    (tmp_path / "list.txt").write_text(f"x{text}.png\n")
    write_flags(tmp_path, [("white",)])[0].rename(tmp_path / f"x{text}.png")
    gallery.sync([tmp_path / "list.txt"])
    assert gallery.find(f"x{text}.png") is not None


def test_long_cells_surrogates_and_zeros_get_a_sentence(tmp_path: Path) -> None:
    gallery = build(tmp_path, f"path,note\nred.png,{'x' * 200_000}\n")
    assert len(gallery.entries([0])[0].metadata["note"]) == 200_000
    for line, sentence in [
        ('{"path": "red.png", "a": "\\ud800"}', "surrogate"),
        ('{"path": "red\\u0000.png"}', "zero character"),
        ('{"path": "red.png", "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1"),
    ]:
        (tmp_path / "t.jsonl").write_text(line + "\n")
        with pytest.raises(BadInput, match=sentence):
            gallery.sync([tmp_path / "t.jsonl"])
