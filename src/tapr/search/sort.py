"""Show the hits of an answer in the order of a column. Which pictures are hits is decided by their scores before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapr.errors import BadOption
from tapr.gallery import Gallery
from tapr.result import Hit
from tapr.store.columns import ColumnType, cell

_OF_A_HIT: dict[str, Callable[[Hit], Any]] = {
    "score": lambda hit: hit.score,
    "id": lambda hit: hit.id,
    "width": lambda hit: hit.width,
    "height": lambda hit: hit.height,
}


def check_column(sort: str | None, gallery: Gallery) -> None:
    """Refuse a column that the gallery does not have."""
    if sort is None:
        return
    name = sort.rpartition(" ")[0]
    columns = [column.name for column in gallery.columns()]
    if name not in (*columns, *_OF_A_HIT):
        what = f"there is no column {name[:80]!r} to sort by: choose {', '.join((*columns, *_OF_A_HIT))[:400]}"
        raise BadOption(what, "sort")


def sorted_hits(hits: tuple[Hit, ...], sort: str | None, gallery: Gallery) -> tuple[Hit, ...]:
    """Return the hits in the order of the column; those without a value last, equal ones by their rank."""
    if sort is None:
        return hits
    name, _, direction = sort.rpartition(" ")
    types = {column.name: column.type for column in gallery.columns()}
    values = {hit.id: _value(hit, name, types.get(name)) for hit in hits}
    with_value = sorted(
        (hit for hit in hits if values[hit.id] is not None), key=lambda hit: values[hit.id], reverse=direction == "desc"
    )
    return (*with_value, *(hit for hit in hits if values[hit.id] is None))


def _value(hit: Hit, name: str, type_: ColumnType | None) -> Any:
    """Return what is compared; the gallery's own column wins over a property of the hit."""
    return _OF_A_HIT[name](hit) if type_ is None else cell(hit.metadata.get(name), type_)
