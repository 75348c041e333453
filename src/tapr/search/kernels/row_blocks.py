"""Finds the blocks of a bank that hold the wanted rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tapr.search.kernels.base import Bank, Rows
from tapr.store.block import Block


def distinct(rows: Rows, row_count: int) -> tuple[Rows | None, Rows | None]:
    """The rows to read, ascending (None: all), and the index of each wanted row among them (None: unchanged)."""
    if len(rows) == row_count and bool((rows == np.arange(row_count)).all()):
        return None, None
    unique, places = np.unique(rows, return_inverse=True)
    return (None if len(unique) == row_count else unique), places


def parts_of(bank: Bank, rows: Rows | None) -> Iterator[tuple[Block, Rows | None]]:
    """Each block with wanted rows, and their indices in it (None: the whole block)."""
    for block in bank.blocks():
        if rows is None:
            yield block, None
            continue
        begin, end = np.searchsorted(rows, [block.start, block.start + len(block)])
        if end - begin == len(block):
            yield block, None
        elif end > begin:
            yield block, rows[begin:end] - block.start


def cuts_of(bank: Bank, rows: Rows | None, size: int) -> Iterator[tuple[Block, slice | Rows, int]]:
    """At most `size` rows of a block at a time: the block, a slice or row indices, and their number."""
    for block, inside in parts_of(bank, rows):
        total = len(block) if inside is None else len(inside)
        for start in range(0, total, size):
            piece = slice(start, min(total, start + size))
            yield block, piece if inside is None else inside[piece], piece.stop - start


def pieces_of(bank: Bank, rows: Rows | None, size: int) -> Iterator[Block]:
    """The rows in small blocks: views of whole ranges, copies of selected rows."""
    for block, chosen, _ in cuts_of(bank, rows, size):
        yield block.take(chosen)
