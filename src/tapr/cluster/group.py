"""A group: a range of a gallery's rows that one actor holds and searches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.cluster.files import files_at, is_url, rows_of
from tapr.encoders.base import EncoderCard
from tapr.score.breakdown import Breakdown, breakdown_of
from tapr.score.compile import CompiledQuery
from tapr.store import layout
from tapr.store.block import Block, Precision
from tapr.store.layout import Manifest
from tapr.store.summary import Subspaces

Hold = Literal["mapped", "memory"]
HOLDS: tuple[Hold, ...] = ("mapped", "memory")
EXACT = (layout.GLOBAL, layout.LOCAL)  # the arrays needed for exact scores, if there are fp16 vectors


@dataclass(frozen=True)
class Span:
    """The range of a group: physical rows start..stop, and the positions first..last of its pictures in the gallery."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def pictures(self) -> int:
        return self.last - self.first


def spans_of(rows: NDArray[np.int64], row_count: int, groups: int) -> list[Span]:
    """Split the rows evenly. Gallery order is row order, so each group is also a range of the gallery."""
    cuts = [row_count * i // groups for i in range(groups + 1)]
    places = np.searchsorted(rows, cuts).tolist()
    return [Span(*cuts[i : i + 2], *places[i : i + 2]) for i in range(groups)]


@dataclass(frozen=True)
class Cut:
    """How the rows are cut into groups."""

    layout: int
    spans: Sequence[Span]


@dataclass(frozen=True, eq=False)
class GroupAssignment:
    """What an actor needs to open its group. Ray passes it again after a restart."""

    location: str  # a folder with the same path on every node, or a URL
    manifest: str  # JSON
    generation: int
    span: Span
    # (pictures,) rows of its pictures, counted from the group's first; None: every row is a picture
    rows: NDArray[np.int64] | None
    hold: Hold
    kernel: str | None  # None: chosen on the actor's node
    threads: int | None
    version: str  # tapr version that started it
    cpus: float = 0.0  # reserved in Ray
    gpus: float = 0.0
    subspaces: Subspaces | None = None  # of the gallery's first stage

    @classmethod
    def compact_rows(cls, rows: NDArray[np.int64], span: Span) -> NDArray[np.int64] | None:
        inside = rows[span.first : span.last] - span.start
        count = span.stop - span.start
        return None if len(inside) == count and bool((inside == np.arange(count)).all()) else inside


class _Stored:
    """The arrays of a group. Kernels cache what they compute from it by identity."""

    def __init__(self, arrays: dict[str, list[NDArray[Any]]], count: int) -> None:
        self.arrays, self.count = arrays, count


@dataclass(frozen=True, eq=False)
class GroupBank:
    """A kernels.base.Bank over one group. Rows count from the group's first."""

    card: EncoderCard
    precision: Precision
    stored: _Stored
    rows: NDArray[np.int64]
    subspaces: Subspaces | None = None

    @classmethod
    def open(cls, assignment: GroupAssignment) -> GroupBank:
        manifest = Manifest.model_validate_json(assignment.manifest)
        files, span = files_at(assignment.location), assignment.span
        arrays = {
            kind: rows_of(files, manifest, kind, assignment.generation, span.start, span.stop)
            for kind in manifest.kinds()
        }
        if assignment.hold == "memory" and not is_url(assignment.location):  # remote files are in memory already
            arrays = {kind: [np.array(array) for array in several] for kind, several in arrays.items()}
        count = span.stop - span.start
        rows = np.arange(count, dtype=np.int64) if assignment.rows is None else assignment.rows
        return cls(manifest.card, manifest.precision, _Stored(arrays, count), rows, assignment.subspaces)

    def narrowed(self, rows: NDArray[np.int64]) -> GroupBank:
        return replace(self, rows=rows)

    @property
    def row_count(self) -> int:
        return self.stored.count

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for several in self.stored.arrays.values() for array in several)

    def blocks(self) -> Iterator[Block]:
        start = 0
        for pieces in zip(*self.stored.arrays.values(), strict=True):
            yield layout.block_of(dict(zip(self.stored.arrays, pieces, strict=True)), start)
            start += len(pieces[0])

    def gather(self, rows: NDArray[np.int64]) -> Block:
        return layout.block_of(self.parts(rows))

    def breakdown(self, query: CompiledQuery, positions: NDArray[np.int64]) -> Breakdown | None:
        """The score breakdown of these pictures. None without fp16 vectors: decoded vectors can differ in the last bits
        with the number of threads, so the caller decodes them.
        """
        if layout.LOCAL not in self.stored.arrays:
            return None
        return breakdown_of(query, layout.block_of(self.parts(self.rows[positions], EXACT)))

    def parts(self, rows: NDArray[np.int64], kinds: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
        """Copies of these rows in this order, by kind; by default all kinds."""
        lengths = [len(array) for array in self.stored.arrays[layout.GLOBAL]]
        ends = np.cumsum(lengths)
        pieces = np.searchsorted(ends, rows, side="right")
        out = {}
        for kind, several in self.stored.arrays.items():
            if kinds is not None and kind not in kinds:
                continue
            taken = np.empty(
                (len(rows), *several[0].shape[1:]) if several else (0,), several[0].dtype if several else None
            )
            for piece in np.unique(pieces):
                here = np.flatnonzero(pieces == piece)
                taken[here] = several[piece][rows[here] - (ends[piece] - lengths[piece])]
            out[kind] = taken
        return out

    def __len__(self) -> int:
        return len(self.rows)
