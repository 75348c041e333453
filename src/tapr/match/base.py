"""What a kernel is and what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard, Float32
from tapr.gallery.block import Block, Precision
from tapr.query import CompiledQuery


class Bank(Protocol):
    """The part of a Gallery that matching needs. Rows are physical: some may be dead, or shared by equal pictures."""

    @property
    def card(self) -> EncoderCard: ...

    @property
    def precision(self) -> Precision: ...

    @property
    def rows(self) -> NDArray[np.int64]:
        """(N,) the physical row of each picture, in gallery order."""

    @property
    def row_count(self) -> int:
        """How many physical rows there are."""

    def blocks(self) -> Iterator[Block]:
        """Every physical row once, in order, memory-mapped."""

    def gather(self, rows: NDArray[np.int64], codes: bool = True) -> Block:
        """Copies of these rows, in this order (start is 0). A bank of both precisions can leave the int8 part out."""

    def __len__(self) -> int:
        """N, the number of pictures."""


class Kernel(Protocol):
    """Scores the rows of a block for many queries in one sweep."""

    @property
    def name(self) -> str: ...

    def score(self, queries: Sequence[CompiledQuery], block: Block) -> Float32:
        """-> (Q, B)"""
