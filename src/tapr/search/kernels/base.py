"""What a kernel is and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard
from tapr.score.compile import CompiledQuery
from tapr.store.block import Block, Precision
from tapr.types import Float32

Rows = NDArray[np.int64]


class Bank(Protocol):
    """The part of a Gallery that matching needs. Rows are physical: some may be dead, or shared by equal pictures."""

    @property
    def card(self) -> EncoderCard: ...

    @property
    def precision(self) -> Precision: ...

    @property
    def rows(self) -> Rows:
        """(N,) the physical row of each picture, in gallery order."""

    @property
    def row_count(self) -> int:
        """How many physical rows there are."""

    @property
    def stored(self) -> object:
        """The same object as long as the stored rows are the same, for every view of them."""

    def blocks(self) -> Iterator[Block]:
        """Every physical row once, in order, memory-mapped."""

    def gather(self, rows: Rows) -> Block:
        """Copies of these rows, in this order (start is 0)."""

    def __len__(self) -> int:
        """N, the number of pictures."""


@dataclass(frozen=True)
class Level:
    """How closely a bank is read: its int8 codes or its fp16 vectors, in full or (coarse) their leading bits alone.

    The leading bits of fp16 numbers are bfloat16, or (fixed) whole multiples of `FIXED_STEP`. By a coarse reading of
    codes, light probes have their leading byte alone; of a short one, all probes.
    """

    codes: bool
    coarse: bool = False
    fixed: bool = False
    short: bool = False

    @property
    def stored(self) -> Level:
        """What is read, without how closely."""
        return Level(self.codes)


FIXED_STEP = 2.0**-14

CODES, VECTORS = Level(True), Level(False)
COARSE_CODES = Level(True, coarse=True)
SHORT_CODES = Level(True, coarse=True, short=True)


class Kernel(Protocol):
    """Scores the rows of a bank for many queries in one sweep.

    At one level, a row's score has the same bits in any company of rows; on the host, of queries too. On a GPU a query
    in company may differ from the same alone in the last bits, by no more than `bounds.radius` allows for.
    """

    @property
    def name(self) -> str: ...

    def levels(self, bank: Bank) -> tuple[Level, ...]:
        """The readings of the bank that a search uses: the cheapest first; the last one gives the answer."""

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """(n,): how much of each probe's length the kernel's rounding loses at this level, at most."""

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        """-> (Q, R), for these physical rows, ascending and none twice; for all, by default"""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """What a cheap reading of all pictures leaves of one query's."""

    first: Rows  # (k,) positions of its k best, descending
    leaders: Float32  # (k,) their scores at the last level
    rest: Rows  # positions of the others that can still be among the k best, ascending


@runtime_checkable
class RankingKernel(Kernel, Protocol):
    """A kernel that ranks itself, where bringing every score to the host would take the longest."""

    def best(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, k: int) -> tuple[Rows, Float32]:
        """-> gallery positions and scores of the k best, both (Q, at most k); equal scores by lower position."""

    def search_one(
        self, query: CompiledQuery, bank: Bank, levels: Sequence[Level], k: int, errors: Callable[[], Float32]
    ) -> tuple[Rows, Float32, int | None] | None:
        """One query's whole search: positions and scores of the k best, and how many pictures the last level read
        where there is more than one; None where it must go step by step. `errors` as in sift."""

    def first_levels(self, queries: Sequence[CompiledQuery], levels: Sequence[Level]) -> tuple[Level, ...]:
        """The levels, a still cheaper one before them where so many queries are worth it."""

    def shortlist(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, k: int, errors: Float32
    ) -> list[Shortlist]:
        """Of each query; `errors` (R,) of all stored rows: see bounds.py."""

    def read(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Sequence[Rows]) -> list[Float32]:
        """The scores of each query, alone, for rows of its own: (R,) each, rows in any order."""


def finest(bank: Bank) -> Level:
    return CODES if bank.precision == "int8" else VECTORS
