"""A bank in memory: for tests, benchmarks and small sets of pictures that are never written to disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard
from tapr.store.block import Block, Precision
from tapr.store.codec import check_lengths, quantise
from tapr.store.summary import SAMPLE, Subspaces, Summariser
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class MemoryBank:
    """A bank that is one Block. `rows` may skip deleted rows and repeat shared ones."""

    card: EncoderCard
    precision: Precision
    block: Block
    rows: NDArray[np.int64]
    block_rows: int = field(default=4096, kw_only=True)
    subspaces: Subspaces | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        global_vectors: NDArray[Any],  # (R, d)
        local_vectors: NDArray[Any],  # (R, M, d)
        precision: Precision = "fp16",
        rows: NDArray[np.int64] | None = None,
        block_rows: int = 4096,
    ) -> MemoryBank:
        """Round vectors as a bank of this precision does: first to fp16, then to codes."""
        _, count, dim = local_vectors.shape
        stored = np.asarray(local_vectors, np.float16)
        check_lengths(stored)
        codes: NDArray[np.int8] | None = None
        scales: Float32 | None = None
        errors: Float32 | None = None
        if precision != "fp16":
            codes, scales, errors = quantise(stored)
        block = Block(
            0, np.asarray(global_vectors, np.float16), None if precision == "int8" else stored, codes, scales, errors
        )
        card = EncoderCard("memory", "", dim, (1, count), "tokens", 0, "crop")
        kept = np.arange(len(block), dtype=np.int64) if rows is None else np.asarray(rows, np.int64)
        return cls(card, precision, block, kept, block_rows=block_rows)

    def summarised(self) -> MemoryBank:
        """The same bank with summaries of its rows."""
        vectors = self.block.decoded()
        subspaces = Subspaces.fitted(vectors[:SAMPLE])
        rows = Summariser(subspaces).of(self.block.global_vectors, vectors)
        block = replace(self.block, outlines=rows.outlines, summaries=rows.summaries, pooled=rows.pooled)
        return replace(self, block=block, subspaces=subspaces)

    @property
    def row_count(self) -> int:
        return len(self.block)

    @property
    def stored(self) -> object:
        return self.block

    def blocks(self) -> Iterator[Block]:
        for start in range(0, len(self.block), self.block_rows):
            yield self.block.take(slice(start, start + self.block_rows), start)

    def gather(self, rows: NDArray[np.int64]) -> Block:
        return self.block.take(rows)

    def __len__(self) -> int:
        return len(self.rows)
