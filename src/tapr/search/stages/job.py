"""The queries, the bank and the rows that all stages of one search share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Rows
from tapr.search.kernels.row_blocks import Selection
from tapr.store.block import Block
from tapr.utils.read_ahead import are_in_memory, read_ahead


class _Opened:
    """A bank of many files whose blocks are looked up once for a whole search."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    @cached_property
    def _blocks(self) -> list[Block]:
        return list(self._bank.blocks())

    def blocks(self) -> Iterator[Block]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._bank)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self._bank, name)


@dataclass(frozen=True, eq=False)
class Job:
    queries: Sequence[CompiledQuery]
    bank: Bank
    kernel: Kernel  # that scores
    selection: Selection

    @classmethod
    def of(cls, queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel) -> Job:
        opened: Any = _Opened(bank)
        return cls(queries, opened, kernel, Selection.of(bank))

    @property
    def locals_count(self) -> int:
        return self.bank.card.locals_count

    def expect(self, indices: Rows | slice, *kinds: str) -> None:
        """Ask for these rows, ascending, of these arrays: they are read soon, and may lie on a disk."""
        rows = self._physical(indices)
        for kind in kinds if len(rows) else ():
            read_ahead(*self._files(kind), rows)

    def in_memory(self, *kinds: str) -> bool:
        rows = self._physical(slice(None))
        return all(are_in_memory(*self._files(kind), rows) for kind in kinds)

    def _physical(self, indices: Rows | slice) -> Rows:
        if isinstance(indices, slice):
            indices = np.arange(*indices.indices(self.selection.count))
        rows = self.selection.physical(indices)
        assert rows is not None
        return rows

    def _files(self, kind: str) -> tuple[list[NDArray[Any]], Rows]:
        """The arrays of a kind, and where each begins."""
        blocks = list(self.bank.blocks())
        return [getattr(block, kind) for block in blocks], np.array([block.start for block in blocks], np.int64)
