import re
import sqlite3
from pathlib import Path

import pytest

from tapr import BadInput, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.store.catalog import Catalog, Entry
from tapr.store.filters import to_sql
from tests.pictures import write_flags
from tests.refusals import refused

PAGE = Path(__file__).parents[2] / "docs" / "where.md"
ROWS = [
    {"class": "dress", "price": 30, "colour": "red"},
    {"class": "dress", "price": 50.5, "it's": 1, "width": 7},
    {"class": "shirt", "price": 10, "colour": "blue", "in stock": True, 'a"b': 2, "since": "2024-05-31T10:00:00+02:00"},
]
NAMES = {"class": "text", "price": "number", "a": "number"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog.create(tmp_path / "c.sqlite", "a gallery")
    for i, row in enumerate(ROWS):
        caption = "Two DOGS and a Straße" if i == 1 else None
        catalog.put(Entry(f"id{i}", f"/p/{i}.png", 30, 1, str(i), 10, 20, metadata=row, row=i, caption=caption))
    catalog.retype({})
    return catalog


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("class = 'dress'", [0, 1]),
        ("class = 'dress' and price < 40", [0]),
        ("class='shirt' OR price>=50.5", [1, 2]),
        ("not (class = 'dress') ", [2]),
        ("colour in ('red', 'blue')", [0, 2]),
        ("colour is null", [1]),
        ("colour is not null and class != 'shirt'", [0]),
        ("path like '%/2.png'", [2]),
        ("id not in ('id0')", [1, 2]),
        ('"in stock" = true', [2]),
        ("height = 20 and price > -1e3", [0, 1, 2]),
        ("width = 7", [1]),  # a column of the table wins over the picture's own
        ("picture.width = 10", [0, 1, 2]),
        ('"it\'s" = 1', [1]),
        ('"a""b" = 2', [2]),
        ("since = '2024-05-31 08:00'", [2]),
        ("caption contains 'dog'", [1]),
        ("caption contains 'STRASSE'", [1]),
        ("caption not contains 'cat'", [1]),
        ("price between 10 and 30", [0, 2]),
        ("price NOT BETWEEN 10 AND 30 or class = 'shirt'", [1, 2]),
    ],
)
def test_conditions(catalog: Catalog, condition: str, expected: list[int]) -> None:
    assert catalog.select(condition)[1].tolist() == expected


@pytest.mark.parametrize(
    "hostile",
    [
        "class = 'x'; DROP TABLE images",
        "1=1 --",
        "class = (SELECT 1)",
        "class = dress",
        "class ==",
        "class",
        "",
        "and",
        "class = 'x",
        "(" * 200,
        "not " * 200 + "a = 1",
        "price < 99999999999999999999",
        "price < 1e999",
        "'' = 'x'",
        "price between 1",
        "price not < 1",
        "class = '\ud800'",
    ],
)
def test_what_is_not_a_condition_is_refused(hostile: str) -> None:
    with refused("bad_filter"):
        to_sql(hostile, NAMES)  # type: ignore[arg-type]


def test_an_unknown_column_is_refused_with_those_there_are(catalog: Catalog) -> None:
    with refused("bad_filter", "'load_extension'", 'a"b, class'):
        catalog.select("load_extension('x') = 1")
    with refused("bad_filter", "class"):
        catalog.select("Clas = 'x'")


def test_captions_are_a_column_only_where_there_are_any(tmp_path: Path) -> None:
    catalog = Catalog.create(tmp_path / "c.sqlite", "a gallery")
    catalog.put(Entry("a", "/a", 1, 1, "", row=0))
    with refused("bad_filter", "'caption'"):
        catalog.select("caption contains 'dog'")


def test_values_and_names_are_parameters_never_sql() -> None:
    name = "x' OR 1=1 --"
    sql, parameters = to_sql(f"\"{name}\" = 'y'' OR ''1''=''1'", {name: "text"})
    assert sql == "(((SELECT value FROM cells WHERE key = images.key AND name = ?) = ?))"
    assert parameters == [name, "y' OR '1'='1"]


def test_too_long_a_filter_is_refused_not_failed(catalog: Catalog) -> None:
    with pytest.raises(BadInput, match="filter cannot be used"):
        catalog.select(" and ".join(["price = 1"] * 40_000))


def rows_of(table: str) -> list[tuple[str, str]]:
    """The two cells of each row of the Markdown table that begins so."""
    text = PAGE.read_text(encoding="utf-8")
    body = text[text.index(table) :].split("\n\n")[0]
    return [(condition, rest) for condition, rest in re.findall(r"^\| `(.+?)` \| (.+) \|$", body, re.MULTILINE)]


def test_every_example_of_the_page_is_true(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",), ("blue",), ("green",)])
    table = re.search(r"```text\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert table is not None
    (tmp_path / "t.csv").write_text(table[1])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "t.csv", FakeEncoder())
    types = {column.name: column.type for column in gallery.columns()}
    assert types == {
        "name": "text", "price": "number", "new": "boolean", "since": "date", "code": "text", "stock": "number"
    }  # fmt: skip
    found = rows_of("| filter | finds |")
    assert len(found) >= 15
    for condition, ids in found:
        got = [id_.removesuffix(".png") for id_ in gallery.select(condition).ids()]
        assert got == ids.split(", "), condition
    refused = rows_of("| filter | sentence |")
    assert len(refused) >= 8
    for condition, sentence in refused:
        with pytest.raises(BadInput) as error:
            gallery.select(condition)
        assert sentence in str(error.value)


def test_the_catalogue_stores_typed_values_that_plain_sql_can_read(catalog: Catalog, tmp_path: Path) -> None:
    catalog.commit()
    db = sqlite3.connect(tmp_path / "c.sqlite")
    cells = db.execute("SELECT key, value, typeof(value) FROM cells WHERE name = 'price' ORDER BY key").fetchall()
    assert cells == [(1, 30, "integer"), (2, 50.5, "real"), (3, 10, "integer")]
    assert db.execute("SELECT type FROM columns WHERE name = 'in stock'").fetchone() == ("boolean",)
    db.close()
