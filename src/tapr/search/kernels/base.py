"""The interfaces of kernels and of the banks they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard
from tapr.score.compile import CompiledQuery
from tapr.store.block import Block, Precision
from tapr.store.summary import Subspaces
from tapr.types import Float32

Rows = NDArray[np.int64]


class Bank(Protocol):
    """The part of a Gallery that matching needs. Rows are physical: some may be deleted, or shared by identical
    pictures.
    """

    @property
    def card(self) -> EncoderCard: ...

    @property
    def precision(self) -> Precision: ...

    @property
    def rows(self) -> Rows:
        """(N,): the physical row of each picture, in gallery order."""

    @property
    def row_count(self) -> int:
        """The number of physical rows."""

    @property
    def stored(self) -> object:
        """An object that is the same for all views of the same stored rows; used as a cache key."""

    @property
    def subspaces(self) -> Subspaces | None:
        """Those of the rows' summaries; None where they have none."""

    def blocks(self) -> Iterator[Block]:
        """Every physical row once, in order, memory-mapped."""

    def gather(self, rows: Rows) -> Block:
        """Copies of these rows, in this order (start is 0)."""

    def __len__(self) -> int:
        """N, the number of pictures."""


@dataclass(frozen=True)
class Level:
    """How precisely a bank is read: its int8 codes or its fp16 vectors, in full or (coarse) only the leading bits.

    The leading bits of fp16 numbers are bfloat16, or (fixed) integer multiples of `FIXED_STEP`. In a coarse reading of
    codes, probes of low weight use only their leading byte; in a short one, all probes.
    """

    codes: bool
    coarse: bool = False
    fixed: bool = False
    short: bool = False

    @property
    def stored(self) -> Level:
        """The stored format that is read, whatever the precision."""
        return Level(self.codes)


FIXED_STEP = 2.0**-14

CODES, VECTORS = Level(True), Level(False)
COARSE_CODES = Level(True, coarse=True)
SHORT_CODES = Level(True, coarse=True, short=True)


class Kernel(Protocol):
    """Scores the rows of a bank for many queries in one sweep.

    At one level, a row's score has the same bits whichever other rows are scored with it; on the CPU also whichever
    other queries. On a GPU the score of a query in a batch may differ from its score alone in the last bits, by at most
    what `bounds.radius` allows for.
    """

    @property
    def name(self) -> str: ...

    def levels(self, bank: Bank) -> tuple[Level, ...]:
        """The levels that a search uses, cheapest first. The last one gives the answer."""

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """(n,): an upper bound of what the kernel's rounding at this level changes in each probe (length of the
        difference).
        """

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        """Scores (Q, R) of these physical rows (ascending, no repeats); by default all rows."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """What remains of one query's pictures after a cheap scan."""

    first: Rows  # (k,) positions of the k best, best first
    leaders: Float32  # (k,) their scores at the last level
    rest: Rows  # positions of the others that can still be among the k best, ascending


@runtime_checkable
class RankingKernel(Kernel, Protocol):
    """A kernel that ranks on its device, because copying every score to the host would be slower."""

    def best(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, k: int) -> tuple[Rows, Float32]:
        """Positions and scores of the k best, both (Q, at most k); ties by lower position."""

    def search_one(
        self, query: CompiledQuery, bank: Bank, levels: Sequence[Level], k: int, errors: Callable[[], Float32]
    ) -> tuple[Rows, Float32, int | None] | None:
        """The whole search of one query: positions and scores of the k best, and how many pictures were re-scored (None
        with one level). Returns None if it must be done step by step. `errors` as in shortlist.
        """

    def first_levels(self, queries: Sequence[CompiledQuery], levels: Sequence[Level]) -> tuple[Level, ...]:
        """The levels, with an even cheaper one first if it pays for so many queries."""

    def shortlist(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, k: int, errors: Float32
    ) -> list[Shortlist]:
        """A shortlist per query. `errors` (R,): the code errors of all stored rows, see bounds.py."""

    def read(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Sequence[Rows]) -> list[Float32]:
        """Scores of each query alone, for its own rows: (R,) each, rows in any order."""


def finest(bank: Bank) -> Level:
    return CODES if bank.precision == "int8" else VECTORS
