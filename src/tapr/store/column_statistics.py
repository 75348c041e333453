"""Statistics of metadata columns: they decide the types, and are updated on writes without reading all rows again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tapr.store.columns import Column, ColumnType, look_of, plural, quoted, type_of
from tapr.store.layout import Manifest


class ColumnStatistics:
    """Counts the kinds of values of one column. Its type is decided after all values."""

    def __init__(self) -> None:
        self.holders = 0  # rows that have the column, with or without a value
        self._types: Counter[ColumnType] = Counter()
        self._looks: Counter[ColumnType] = Counter()
        self._first: dict[ColumnType, str] = {}  # first value of each apparent type
        self._ordered = True  # whether the stored first values are still the first

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
        """The column's type and note; None if the note must quote a value that only a full scan can find."""
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
    """Statistics of all columns."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._statistics: dict[str, ColumnStatistics] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any], *, last: bool = True) -> None:
        """Add a row. `last`: it comes after all rows added so far."""
        for name, value in row.items():
            self._statistics.setdefault(name, ColumnStatistics()).add(value, last=last)

    def remove(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            self._statistics[name].remove(value)
            if not self._statistics[name].holders:
                del self._statistics[name]

    def columns(self, declared: Mapping[str, ColumnType]) -> dict[str, Column] | None:
        """The columns sorted by name; None if a full scan is needed. Never None if every row was added as the last."""
        found = {name: self._statistics[name].column(name, declared.get(name)) for name in sorted(self._statistics)}
        sure = {name: column for name, column in found.items() if column is not None}
        return sure if len(sure) == len(found) else None


class LatestStatistics:
    """The statistics of the last snapshot that this process wrote. A writer takes them and stores the new ones."""

    def __init__(self) -> None:
        self._kept: tuple[str | None, int, GalleryStatistics] | None = None

    def take(self, manifest: Manifest) -> GalleryStatistics | None:
        """The statistics, or None if another process has written since or a write failed."""
        kept, self._kept = self._kept, None
        return kept[2] if kept is not None and kept[:2] == (manifest.gallery_id, manifest.snapshot) else None

    def keep(self, manifest: Manifest, snapshot: int, statistics: GalleryStatistics) -> None:
        self._kept = manifest.gallery_id, snapshot, statistics


def columns_of(rows: Iterable[Mapping[str, Any]], declared: Mapping[str, ColumnType]) -> dict[str, Column]:
    """The columns of all rows, sorted by name."""
    found = GalleryStatistics(rows).columns(declared)
    assert found is not None
    return found


def _kinds(value: Any) -> tuple[ColumnType, ColumnType]:
    """The type of a value, and the type that its text looks like."""
    type_ = type_of(value)
    return type_, look_of(value) if type_ == "text" and isinstance(value, str) else type_
