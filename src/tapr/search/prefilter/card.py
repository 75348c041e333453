"""The first stage beside a GPU kernel: what lies on the card, and which kernel reads the pictures that are left.

This module loads no torch: it does nothing before a GPU kernel has loaded it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel, Rows
from tapr.search.prefilter.bound import allowance
from tapr.search.prefilter.candidates import query_vector
from tapr.search.prefilter.limit import compiled_beside, limit_of
from tapr.store.summary import directions_of
from tapr.types import Float32

if TYPE_CHECKING:
    from tapr.search.kernels.gpu import GpuKernel
    from tapr.search.prefilter.gpu_records import BankRecords

_AT_ONCE = 1 << 24  # pictures bounded at a time
_TIMED = 1 << 20  # the same where the clock is looked at before each


@dataclass(frozen=True, eq=False)
class Bounded:
    """What the bounds leave of some rows."""

    left: Rows  # ascending indices of those that reach the floor
    highest: Float32  # their bounds
    seen: int  # the number of rows that there was time for, from the first on


@dataclass(frozen=True, eq=False)
class Card:
    """A bank whose records lie in a GPU's memory."""

    gpu: GpuKernel
    bank: Bank
    records: BankRecords
    reader: Kernel  # scores exactly: all pictures that a search compares

    @property
    def name(self) -> str:
        return self.gpu.name if self.reader is self.gpu else f"{self.gpu.name} bounds, {self.reader.name}"

    @property
    def remarks(self) -> tuple[str, ...]:
        card = self.bank.card
        if self.closer or not directions_of(card.locals_count, card.dim)[1]:
            return ()
        return ("summaries do not fit the GPU's memory beside the outlines: the processor read them",)

    @property
    def closer(self) -> bool:
        """Whether summaries are on the card too."""
        return self.records.summaries is not None

    def candidates(self, query: CompiledQuery, rows: Rows, count: int) -> Rows:
        """Indices of the most promising rows, ascending."""
        from tapr.search.prefilter.gpu import candidates_on

        wanted = query_vector(query)
        return self.gpu.alone(lambda: candidates_on(wanted, self.records, self._some(rows), count))

    def bounded(
        self, query: CompiledQuery, rows: Rows, floor: np.float32, in_time: Callable[[], bool] | None
    ) -> Bounded:
        """Bound the score of these rows, as long as there is time, by all records that are here."""
        size, seen = _AT_ONCE if in_time is None else _TIMED, 0
        left, highest = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        while seen < len(rows) and (in_time is None or in_time()):
            piece = rows[seen : seen + size]
            found, bounds = self.gpu.alone(partial(self._open, query, piece, floor))
            left.append(seen + found)
            highest.append(bounds)
            seen += len(piece)
        return Bounded(np.concatenate(left), np.concatenate(highest), seen)

    def _some(self, rows: Rows) -> Any:
        """These rows (ascending, no repeats) on the device; None: all."""
        import torch

        from tapr.search.kernels.gpu_pack import upload

        if len(rows) == self.bank.row_count:
            return None
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return torch.arange(int(rows[0]), int(rows[-1]) + 1, device=self.gpu.device)
        return upload([rows], self.gpu.device)[0]

    def _open(self, query: CompiledQuery, rows: Rows, floor: np.float32) -> tuple[Rows, Float32]:
        from tapr.search.prefilter.gpu import DeviceProbes, limits_on, raised

        assert self.bank.subspaces is not None
        count, last = self.bank.card.locals_count, self.reader.levels(self.bank)[-1]
        limit, chosen = limit_of(query, self.bank.subspaces, count), self._some(rows)
        left, highest = None, None
        for closer in (False, True)[: 1 + self.closer]:
            probes = DeviceProbes.of(limit, closer, self.gpu.device)
            found = raised(
                limits_on(probes, self.records, chosen, closer), allowance(limit, probes.lost, self.reader, last, count)
            )
            found = found if highest is None else found.minimum(highest)
            (kept,) = (found >= float(floor)).nonzero(as_tuple=True)
            highest, chosen = found[kept], kept if chosen is None else chosen[kept]
            left = kept if left is None else left[kept]
        assert left is not None
        assert highest is not None
        return left.cpu().numpy(), highest.cpu().numpy()


def card_of(kernel: Kernel, bank: Bank, *, unasked: bool = False) -> Card | None:
    """If this is a GPU's kernel and the bank's records fit its memory; `unasked`: only where its vectors do not.

    Vectors that do not fit are read where they lie, by the processor's compiled kernel if there is one.
    """
    if bank.subspaces is None or not isinstance(kernel, RankingKernel):
        return None
    from tapr.search.kernels.gpu import GpuKernel

    if not isinstance(kernel, GpuKernel):
        return None
    gpu = kernel

    def found() -> Card | None:
        from tapr.search.prefilter.gpu_records import records_on

        held = gpu.memory.resident(bank, gpu.levels(bank)[-1].stored) is not None
        if held and unasked:
            return None
        records = records_on(gpu, bank)
        reader = gpu if held else compiled_beside(gpu) or gpu
        return None if records is None else Card(gpu, bank, records, reader)

    return gpu.alone(found)
