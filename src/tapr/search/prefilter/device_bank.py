"""The first stage beside a GPU kernel: what lies in its memory, and which kernel reads the pictures that are left.

This module loads no torch: it does nothing before a GPU kernel has loaded it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel, Rows
from tapr.search.prefilter.bound import allowance
from tapr.search.prefilter.candidates import PooledQuery, Resemblance
from tapr.search.prefilter.limit import compiled_beside, limit_of
from tapr.types import Float32

if TYPE_CHECKING:
    from tapr.search.kernels.gpu import GpuKernel
    from tapr.search.prefilter.gpu import DeviceResemblance
    from tapr.search.prefilter.gpu_records import BankRecords

_AT_ONCE = 1 << 24  # pictures bounded at a time
_TIMED = 1 << 20  # the same where time is limited


@dataclass(frozen=True, eq=False)
class Bounded:
    """What the bounds leave of some pictures."""

    left: Rows  # ascending indices of those that reach the floor
    highest: Float32  # their bounds


@dataclass(frozen=True, eq=False)
class DeviceBank:
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
        if self.closer:
            return ()
        return ("summaries do not fit the GPU's memory beside the outlines: the processor read them",)

    @property
    def closer(self) -> bool:
        """Whether summaries are on the device too."""
        return self.records.summarised is not None

    def resemblance(self, query: CompiledQuery, rows: Rows) -> DeviceResemblance:
        """Of these rows (ascending, no repeats), on the card."""
        from tapr.search.prefilter.gpu import resemblance_on

        pooled = PooledQuery.of(query)
        return self.gpu.alone(lambda: resemblance_on(pooled, self.records, self._some(rows)))

    def best(self, found: DeviceResemblance, count: int) -> Rows:
        """Indices of the most promising, ascending."""
        return self.gpu.alone(lambda: found.best(count))

    def known(self, found: DeviceResemblance, indices: Rows) -> Resemblance:
        return self.gpu.alone(lambda: found.known(indices))

    def pieces(self, found: DeviceResemblance) -> Iterator[Any]:
        """All pictures, as many at a time as are bounded at once; None: all at once."""
        if len(found) <= _AT_ONCE:
            yield None
            return
        for start in range(0, len(found), _AT_ONCE):
            yield slice(start, min(len(found), start + _AT_ONCE))

    def by_promise(self, found: DeviceResemblance, best: Rows) -> Iterator[Any]:
        """All pictures but the best, in pieces, the most promising first."""
        if len(best) < len(found):
            yield from self.gpu.alone(lambda: found.others(best).split(_TIMED))

    def bounded(self, query: CompiledQuery, found: DeviceResemblance, piece: Any, floor: np.float32) -> Bounded:
        """Bound the score of a piece's pictures by all records that are here."""
        return self.gpu.alone(lambda: self._bounded(query, found, piece, floor))

    def _bounded(self, query: CompiledQuery, found: DeviceResemblance, piece: Any, floor: np.float32) -> Bounded:
        import torch

        from tapr.search.prefilter.gpu import DeviceProbes, limits_on, raised

        assert self.bank.subspaces is not None
        if isinstance(piece, slice):
            piece = torch.arange(piece.start, piece.stop, device=self.gpu.device)
        elif piece is not None:
            piece = piece.sort()[0]
        count, last = self.bank.card.locals_count, self.reader.levels(self.bank)[-1]
        limit, left, highest = limit_of(query, self.bank.subspaces, count), piece, None
        for closer in (False, True)[: 1 + self.closer]:
            probes = DeviceProbes.of(limit, closer, self.gpu.device)
            rows, targets = found.at(left)
            bounds = raised(
                limits_on(probes, self.records, rows, None if closer else targets),
                allowance(limit, self.reader, last, count, probes.lost),
            )
            bounds = bounds if highest is None else bounds.minimum(highest)
            (kept,) = (bounds >= float(floor)).nonzero(as_tuple=True)
            highest, left = bounds[kept], kept if left is None else left[kept]
        assert highest is not None
        return Bounded(left.cpu().numpy(), highest.cpu().numpy())

    def _some(self, rows: Rows) -> Any:
        """These rows on the device; None: all."""
        import torch

        from tapr.search.kernels.gpu_pack import upload

        if len(rows) == self.bank.row_count:
            return None
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return torch.arange(int(rows[0]), int(rows[-1]) + 1, device=self.gpu.device)
        return upload([rows], self.gpu.device)[0]


def device_bank_of(kernel: Kernel, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
    """If this is a GPU's kernel and the bank's records fit its memory; `unasked`: only where its vectors do not.

    Vectors that do not fit are read where they lie, by the processor's compiled kernel if there is one.
    """
    if bank.subspaces is None or not isinstance(kernel, RankingKernel):
        return None
    from tapr.search.kernels.gpu import GpuKernel

    if not isinstance(kernel, GpuKernel):
        return None
    gpu = kernel

    def found() -> DeviceBank | None:
        from tapr.search.prefilter.gpu_records import records_on

        held = gpu.memory.resident(bank, gpu.levels(bank)[-1].stored) is not None
        if held and unasked:
            return None
        records = records_on(gpu, bank)
        reader = gpu if held else compiled_beside(gpu) or gpu
        return None if records is None else DeviceBank(gpu, bank, records, reader)

    return gpu.alone(found)
