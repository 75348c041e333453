"""Counts of what the columns of the metadata hold: they tell the types, and follow a write without another look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tapr.store.columns import Column, ColumnType, look_of, plural, quoted, type_of
from tapr.store.layout import Manifest


class ColumnStatistics:
    """Counts what kinds of values a column holds; its type is decided when all of them were seen."""

    def __init__(self) -> None:
        self.holders = 0  # rows that have the column, with or without a value
        self._types: Counter[ColumnType] = Counter()
        self._looks: Counter[ColumnType] = Counter()
        self._first: dict[ColumnType, str] = {}  # of each look
        self._ordered = True  # whether these are still the first ones

    def add(self, value: Any, *, last: bool) -> None:
        self.holders += 1
        self._ordered = self._ordered and last
        if value is None:
            return
        type_, look = _kinds(value)
        self._types[type_] += 1
        self._looks[look] += 1
        if look not in self._first:
            self._first[look] = quoted(value)

    def remove(self, value: Any) -> None:
        self.holders -= 1
        if value is None:
            return
        for counts, kind in zip((self._types, self._looks), _kinds(value), strict=True):
            counts[kind] -= 1
            if not counts[kind]:
                del counts[kind]
        self._ordered = False

    def column(self, name: str, declared: ColumnType | None) -> Column | None:
        """None: its note quotes a value, and which one is known only after another look at all of them."""
        if declared is not None:
            return Column(name, declared, declared=True)
        if len(self._types) == 1 and "text" not in self._types:
            return Column(name, next(iter(self._types)))
        ((look, count),) = self._looks.most_common(1) or [("text", 0)]
        if look == "text" or len(self._looks) < 2 or 2 * count <= self._looks.total():
            return Column(name, "text")
        if not self._ordered:
            return None
        stray = next(self._first[other] for other in self._looks if other != look)
        return Column(name, "text", note=f"{count:,} are {plural(look)}, but one is {stray}")


class GalleryStatistics:
    """Of all columns."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._tallies: dict[str, ColumnStatistics] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any], *, last: bool = True) -> None:
        """`last`: it stands after all that were added before."""
        for name, value in row.items():
            self._tallies.setdefault(name, ColumnStatistics()).add(value, last=last)

    def remove(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            self._tallies[name].remove(value)
            if not self._tallies[name].holders:
                del self._tallies[name]

    def columns(self, declared: Mapping[str, ColumnType]) -> dict[str, Column] | None:
        """Sorted by name. None: not known without another look at all rows; never so where each was the last one."""
        found = {name: self._tallies[name].column(name, declared.get(name)) for name in sorted(self._tallies)}
        sure = {name: column for name, column in found.items() if column is not None}
        return sure if len(sure) == len(found) else None


class LatestStatistics:
    """Those of the last snapshot that this process wrote. Whoever writes takes them, and gives back the new ones."""

    def __init__(self) -> None:
        self._kept: tuple[str | None, int, GalleryStatistics] | None = None

    def take(self, manifest: Manifest) -> GalleryStatistics | None:
        """None where another process has written since, or a write failed half way."""
        kept, self._kept = self._kept, None
        return kept[2] if kept is not None and kept[:2] == (manifest.gallery_id, manifest.snapshot) else None

    def keep(self, manifest: Manifest, snapshot: int, tallies: GalleryStatistics) -> None:
        self._kept = manifest.gallery_id, snapshot, tallies


def columns_of(rows: Iterable[Mapping[str, Any]], declared: Mapping[str, ColumnType]) -> dict[str, Column]:
    """The columns of all rows, sorted by name."""
    found = GalleryStatistics(rows).columns(declared)
    assert found is not None
    return found


def _kinds(value: Any) -> tuple[ColumnType, ColumnType]:
    """What a value is, and what it looks like."""
    type_ = type_of(value)
    return type_, look_of(value) if type_ == "text" and isinstance(value, str) else type_
