import json
import sqlite3

import pytest

from tapr import BadInput
from tapr.gallery.where import to_sql

ROWS = [
    {"class": "dress", "price": 30, "colour": "red"},
    {"class": "dress", "price": 50.5, "colour": None, "it's": 1},
    {"class": "shirt", "price": 10, "colour": "blue", "in stock": True, 'a"b': 2},
]


def matching(condition: str) -> list[int]:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE images (id TEXT, path TEXT, width INT, height INT, size INT, metadata TEXT)")
    for i, row in enumerate(ROWS):
        db.execute("INSERT INTO images VALUES (?, ?, 10, 20, 30, ?)", (f"id{i}", f"/p/{i}.png", json.dumps(row)))
    sql, parameters = to_sql(condition)
    found = [int(row[0][2:]) for row in db.execute(f"SELECT id FROM images WHERE {sql}", parameters)]
    db.close()
    return found


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
        ("width = 10 and price > -1", [0, 1, 2]),
        ("'' = 'x'", None),
        ("nothing = 'x'", []),
        ('"it\'s" = 1', [1]),
        ('"a""b" = 2', [2]),
    ],
)
def test_conditions(condition: str, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(BadInput):
            matching(condition)
    else:
        assert matching(condition) == expected


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
        "load_extension('x') = 1",
    ],
)
def test_what_is_not_a_condition_is_refused(hostile: str) -> None:
    with pytest.raises(BadInput, match="cannot read the filter"):
        to_sql(hostile)


def test_values_and_names_are_parameters_never_sql() -> None:
    sql, parameters = to_sql("\"x' OR 1=1 --\" = 'y'' OR ''1''=''1'")
    assert sql == "(((SELECT value FROM json_each(metadata) WHERE key = ?) = ?))"
    assert parameters == ["x' OR 1=1 --", "y' OR '1'='1"]
