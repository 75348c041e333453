"""One sweep over a bank: every block once, every query on it, nothing larger than a block's scores kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.errors import BadInput
from tapr.gallery.block import Block
from tapr.match.base import Bank, Kernel
from tapr.match.choose import choose_kernel
from tapr.query import CompiledQuery

_GATHER_BYTES = 8 << 20  # copied at a time when only some rows are wanted; small, so that memory is used again
_SCAN_SHARE = 4  # wanted rows are gathered when they are fewer than 1 in this many


def score(query: CompiledQuery, bank: Bank, kernel: Kernel | None = None) -> Float32:
    """-> (N,) in gallery order."""
    (scores,) = score_many([query], bank, kernel)
    return np.asarray(scores, np.float32)


def score_many(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel | None = None) -> Float32:
    """-> (Q, N) in gallery order, one sweep over the bank."""
    check(queries, bank)
    kernel = kernel or choose_kernel(bank.precision)
    rows, places = needed_rows(bank)
    parts = [kernel.score(queries, block) for block in blocks_of(bank, rows)]
    return in_order(parts, len(queries))[:, places]


def check(queries: Sequence[CompiledQuery], bank: Bank) -> None:
    for query in queries:
        if query.dim != bank.card.dim:
            raise BadInput(
                f"the query has vectors of {query.dim} numbers and the bank, made with {bank.card.name}, of "
                f"{bank.card.dim}: compile the query with the bank's encoder"
            )


def needed_rows(bank: Bank) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """-> the physical rows to gather (None: scan all), and for each picture its place among what is read."""
    rows = np.asarray(bank.rows, np.int64)
    if len(rows) * _SCAN_SHARE >= bank.row_count:
        return None, rows
    unique, places = np.unique(rows, return_inverse=True)
    return unique, places.astype(np.int64)


def blocks_of(bank: Bank, rows: NDArray[np.int64] | None, codes: bool = True) -> Iterator[Block]:
    """The whole bank as it is mapped, or copies of some rows, a few at a time, with or without the codes."""
    if rows is None:
        yield from bank.blocks()
        return
    step = max(1, _GATHER_BYTES // (2 * bank.card.dim * bank.card.locals_count))
    for start in range(0, len(rows), step):
        yield bank.gather(rows[start : start + step], codes)


def codes_only(block: Block) -> Block:
    """The same rows as an int8 bank holds them."""
    return replace(block, local_vectors=None)


def in_order(parts: Sequence[Float32], queries: int) -> Float32:
    return np.concatenate(parts, axis=1) if parts else np.zeros((queries, 0), np.float32)
