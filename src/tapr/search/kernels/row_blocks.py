"""Finds the blocks of a bank that hold the wanted rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from tapr.search.kernels.base import Bank, Rows
from tapr.store.block import Block


def distinct(rows: Rows, row_count: int) -> tuple[Rows | None, Rows | None]:
    """The rows to read, ascending (None: all), and the index of each wanted row among them (None: unchanged)."""
    if len(rows) == row_count and bool((rows == np.arange(row_count)).all()):
        return None, None
    unique, places = np.unique(rows, return_inverse=True)
    return (None if len(unique) == row_count else unique), places


@dataclass(frozen=True, eq=False)
class Selection:
    """The rows that a search reads, each once, in ascending order."""

    rows: Rows | None  # (R,) physical; None: all of the bank
    places: Rows | None  # (N,) the index of each picture's row; None: the pictures are these rows in order
    count: int  # R

    @classmethod
    def of(cls, bank: Bank) -> Selection:
        """Return the bank's selection; computed once while its rows are the same array."""
        rows, known = bank.rows, _known.get(bank)
        if known is None or known[0] is not rows:
            known = _known[bank] = rows, cls._of(rows, bank.row_count)
        return known[1]

    @classmethod
    def _of(cls, rows: Rows, count: int) -> Selection:
        if bool((rows[1:] > rows[:-1]).all()):
            return cls(None if len(rows) == count else rows, None, len(rows))
        unique, places = distinct(rows, count)
        return cls(unique, places, count if unique is None else len(unique))

    @cached_property
    def shared(self) -> Rows | None:
        """(R,): how many pictures share each row; None if the pictures are the rows in order."""
        return None if self.places is None else np.bincount(self.places, minlength=self.count)

    def physical(self, indices: Rows | None) -> Rows | None:
        """Return the physical rows of these indices (None: of all); None: all of the bank."""
        if indices is None or self.rows is None:
            return self.rows if indices is None else indices
        return self.rows[indices]

    def indices_of(self, physical: Rows) -> Rows:
        return physical if self.rows is None else np.searchsorted(self.rows, physical)


_known: WeakKeyDictionary[Bank, tuple[Rows, Selection]] = WeakKeyDictionary()


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
