"""The interfaces of kernels and of the banks they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard
from tapr.score.compile import CompiledQuery
from tapr.store.block import Block, Precision
from tapr.store.summary import Subspaces
from tapr.types import Float32, Float64

if TYPE_CHECKING:
    from tapr.search.kernels.sketch import Sketch
    from tapr.search.kernels.values import Values
    from tapr.search.prefilter.device_bank import DeviceBank
    from tapr.search.prefilter.limit import Limit

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

    @property
    def gains_by_summaries(self) -> bool:
        """Whether summaries on this machine are read faster than it scores vectors: search/plan.py."""

    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        """The levels that a search with so many probes uses, cheapest first. The last one gives the answer."""

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """(n,): an upper bound of what the kernel's rounding at this level changes in each probe (length of the
        difference).
        """

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        """Scores (Q, R) of these physical rows (ascending, no repeats); by default all rows."""

    def bounds(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, rows: Rows | None
    ) -> Values:
        """The most that these rows can score at the last level, by a sweep at this one; the scores if both are one."""

    def read(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Sequence[Rows]) -> list[Float32]:
        """Scores of each query for its own rows (ascending, no repeats), with the bits that it has alone. Codes on a
        device are scored for all queries together, as in a sweep.
        """

    @property
    def sketcher(self) -> SketchingKernel | None:
        """The kernel that bounds by sketches, if this one can."""

    @property
    def bounder(self) -> BoundingKernel:
        """The kernel that bounds by summaries on the host."""

    def device_bank(self, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
        """The bank's summaries in a device's memory, if they fit; `unasked`: only if its vectors do not."""


class SketchingKernel(Protocol):
    """A kernel that computes the bounds of sketches: sketch.py."""

    def highest(
        self, sketches: Sequence[Sketch], limits: Sequence[float], bank: Bank, level: Level, rows: Rows | None
    ) -> Float32:
        """(Q, R): the upper bound of each row's score, except for `Sketch.slack`. `limits` are from
        `Sketch.longest`.
        """


class BoundingKernel(Protocol):
    """A kernel that computes bounds and candidates from summaries: search/prefilter."""

    @property
    def name(self) -> str: ...

    def limits(
        self, limits: Sequence[Limit], bank: Bank, rows: Rows | None, targets: Float32, floors: Float64 | None
    ) -> Float32:
        """(Q, R): as limit.limits_by_numpy, but for rounding."""

    def pooled(self, wanted: NDArray[np.int16], bank: Bank, rows: Rows | None) -> Float32:
        """(Q, 2, d) -> (Q, 2, R): products with both halves of the pooled vectors."""


def finest(bank: Bank) -> Level:
    return CODES if bank.precision == "int8" else VECTORS
