"""Facets: values and ranges of the metadata columns, to choose filters from."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from tapr.store.columns import Column, ColumnType

FEW = 12  # most values to list
_LONGEST = 60  # longest value to list
_FROM = "FROM cells JOIN images USING (key) WHERE name = ? AND value IS NOT NULL AND row IS NOT NULL"


@dataclass(frozen=True)
class Facet:
    """A range for numbers and dates; the values for booleans and for texts with few different ones."""

    name: str
    type: ColumnType
    least: str | int | float | None = None
    most: str | int | float | None = None
    values: tuple[tuple[str | bool, int], ...] | None = None  # (value, number of pictures), most frequent first


def facets_of(db: sqlite3.Connection, columns: Sequence[Column]) -> list[Facet]:
    """Facets of the columns with more than one value and not too many texts."""
    found = (_range(db, column) if column.type in ("number", "date") else _values(db, column) for column in columns)
    return [facet for facet in found if facet is not None]


def _range(db: sqlite3.Connection, column: Column) -> Facet | None:
    least, most = db.execute(f"SELECT MIN(value), MAX(value) {_FROM}", (column.name,)).fetchone()
    return None if least == most else Facet(column.name, column.type, least, most)


def _values(db: sqlite3.Connection, column: Column) -> Facet | None:
    counted = f"SELECT value, COUNT(*) {_FROM} GROUP BY value ORDER BY COUNT(*) DESC, value LIMIT {FEW + 1}"
    values = db.execute(counted, (column.name,)).fetchall()
    if not 1 < len(values) <= FEW or any(len(str(value)) > _LONGEST for value, _ in values):
        return None
    as_read = bool if column.type == "boolean" else str
    return Facet(column.name, column.type, values=tuple((as_read(value), count) for value, count in values))
