"""The changes that an index run makes to a gallery's settings: sources added, dropped or moved, and column types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tapr.errors import BadInput
from tapr.index.sources import Found, resolve
from tapr.store.catalog import Catalog
from tapr.store.columns import AUTO, COLUMN_TYPES, ColumnType, declared_type


@dataclass(frozen=True)
class Changes:
    add: tuple[str, ...] = ()  # sources, absolute
    drop: tuple[str, ...] = ()  # as the user wrote them
    move: tuple[tuple[str, str], ...] = ()  # old, new, as the user wrote them
    columns: Mapping[str, str] = field(default_factory=dict)  # name -> type, or AUTO

    @classmethod
    def of(
        cls,
        add: Iterable[str | Path] = (),
        drop: Iterable[str | Path] = (),
        move: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        columns: Mapping[str, str] | None = None,
    ) -> Changes:
        for name, type_ in (columns or {}).items():
            if type_ != AUTO:
                declared_type(name, type_)
        pairs = move.items() if isinstance(move, Mapping) else move
        moved = tuple((str(old), str(new)) for old, new in pairs)
        return cls(tuple(map(resolve, add)), tuple(map(str, drop)), moved, dict(columns or {}))

    def sources(self, known: Iterable[str]) -> list[str]:
        """The resulting sources, without repeats, in order."""
        sources = list(known)
        for dropped in self.drop:
            sources.remove(_known(dropped, sources))
        for old, new in self.move:
            sources[sources.index(_known(old, sources))] = resolve(new)
        return list(dict.fromkeys([*sources, *self.add]))

    def declared(self, known: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
        out = {name: type_ for name, type_ in known.items() if name not in self.columns}
        return out | {name: declared_type(name, type_) for name, type_ in self.columns.items() if type_ != AUTO}

    def check(self, found: Found, catalog: Catalog | None = None) -> None:
        """Sources named in this run must exist; earlier ones may be temporarily unavailable."""
        known = catalog.sources() if catalog else []
        for source in (*self.add, *(resolve(new) for _, new in self.move)):
            if source in found.empty:
                also = f", or let the gallery forget it with tapr sources --drop {source!r}" if source in known else ""
                raise BadInput(f"{found.empty[source]}: check the path{also}; nothing was changed")
            if source in found.unreadable:
                raise BadInput(f"the folder {source!r} cannot be listed: check its permissions; nothing was changed")
        names = {name for candidate in found.candidates for name in candidate.metadata}
        names |= {column.name for column in catalog.columns()} if catalog else set()
        for name in self.columns:
            if name not in names:
                raise BadInput(
                    f"there is no column {name!r} to be of type {self.columns[name]}: the columns are "
                    f"{', '.join(sorted(names)) or 'none, because the pictures come from no table'}"
                )


def parse_columns(declarations: Iterable[str]) -> dict[str, str]:
    """price=number -> {"price": "number"}"""
    out = {}
    for text in declarations:
        name, sign, type_ = text.rpartition("=")
        if not sign or not name:
            raise BadInput(f"cannot read the column {text!r}: write it as NAME=TYPE, such as price=number")
        if type_ not in (*COLUMN_TYPES, AUTO):
            raise BadInput(f"the column {name!r} cannot be a {type_!r}: choose {', '.join(COLUMN_TYPES)} or {AUTO}")
        out[name] = type_
    return out


def _known(source: str, sources: list[str]) -> str:
    """The stored form of a source, given as stored or as a relative path."""
    for name in (source, resolve(source)):
        if name in sources:
            return name
    raise BadInput(f"{source!r} is not a source of the gallery: its sources are {', '.join(sources) or 'none'}")
