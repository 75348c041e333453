"""A group: a run of a gallery's rows, which one actor holds and searches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
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

Hold = Literal["mapped", "memory"]
HOLDS: tuple[Hold, ...] = ("mapped", "memory")
EXACT = (layout.GLOBAL, layout.LOCAL)  # kinds: all that is read of a few rows, where there are fp16 vectors


@dataclass(frozen=True)
class Span:
    """Where a group lies: physical rows start..stop, which are the gallery positions first..last of all pictures."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def pictures(self) -> int:
        return self.last - self.first


def spans_of(rows: NDArray[np.int64], row_count: int, groups: int) -> list[Span]:
    """The rows cut evenly. Gallery order is the order of rows, so each group is a run of the gallery too."""
    cuts = [row_count * i // groups for i in range(groups + 1)]
    places = np.searchsorted(rows, cuts).tolist()
    return [Span(*cuts[i : i + 2], *places[i : i + 2]) for i in range(groups)]


@dataclass(frozen=True, eq=False)
class GroupAssignment:
    """All that an actor needs to hold a group; it is given again when Ray restarts the actor."""

    location: str  # folder, the same on every node, or URL
    manifest: str  # JSON
    generation: int
    span: Span
    rows: NDArray[np.int64] | None  # (pictures,) of its pictures, counted from the group's first; None: each row once
    hold: Hold
    kernel: str | None  # None: what choose_kernel takes on the actor's node
    threads: int | None
    version: str  # of tapr, where it was started
    cpus: float = 0.0  # reserved with Ray
    gpus: float = 0.0

    @classmethod
    def compact_rows(cls, rows: NDArray[np.int64], span: Span) -> NDArray[np.int64] | None:
        inside = rows[span.first : span.last] - span.start
        count = span.stop - span.start
        return None if len(inside) == count and bool((inside == np.arange(count)).all()) else inside


class _Stored:
    """The rows of a group, known by identity: what kernels remember of them lives as long."""

    def __init__(self, arrays: dict[str, list[NDArray[Any]]], count: int) -> None:
        self.arrays, self.count = arrays, count


@dataclass(frozen=True, eq=False)
class GroupBank:
    """match.base.Bank over one group; rows are counted from the group's first."""

    card: EncoderCard
    precision: Precision
    stored: _Stored
    rows: NDArray[np.int64]

    @classmethod
    def open(cls, assignment: GroupAssignment) -> GroupBank:
        manifest = Manifest.model_validate_json(assignment.manifest)
        files, span = files_at(assignment.location), assignment.span
        arrays = {
            kind: rows_of(files, manifest, kind, assignment.generation, span.start, span.stop)
            for kind in manifest.kinds()
        }
        if assignment.hold == "memory" and not is_url(assignment.location):  # what was fetched is in memory already
            arrays = {kind: [np.array(array) for array in several] for kind, several in arrays.items()}
        count = span.stop - span.start
        rows = np.arange(count, dtype=np.int64) if assignment.rows is None else assignment.rows
        return cls(manifest.card, manifest.precision, _Stored(arrays, count), rows)

    def narrowed(self, rows: NDArray[np.int64]) -> GroupBank:
        return GroupBank(self.card, self.precision, self.stored, rows)

    @property
    def row_count(self) -> int:
        return self.stored.count

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for several in self.stored.arrays.values() for array in several)

    def blocks(self) -> Iterator[Block]:
        start = 0
        for pieces in zip(*self.stored.arrays.values(), strict=True):
            yield block_of(dict(zip(self.stored.arrays, pieces, strict=True)), start)
            start += len(pieces[0])

    def gather(self, rows: NDArray[np.int64]) -> Block:
        return block_of(self.parts(rows))

    def breakdown(self, query: CompiledQuery, positions: NDArray[np.int64]) -> Breakdown | None:
        """How these pictures' scores are made up. None without fp16 vectors: the bits of decoded ones depend on how
        many threads a process has, so they are decoded where the caller is.
        """
        if layout.LOCAL not in self.stored.arrays:
            return None
        return breakdown_of(query, block_of(self.parts(self.rows[positions], EXACT)))

    def parts(self, rows: NDArray[np.int64], kinds: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
        """Copies of these rows, in this order, by kind; all kinds, by default."""
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


def block_of(parts: dict[str, NDArray[Any]], start: int = 0) -> Block:
    return Block(
        start,
        parts[layout.GLOBAL],
        parts.get(layout.LOCAL),
        parts.get(layout.CODES),
        parts.get(layout.SCALES),
        parts.get(layout.ERRORS),
    )
