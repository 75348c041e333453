"""The first stage on a GPU: summaries in its memory, and the kernel that reads the pictures that are left.

This module loads no torch: it does nothing before a GPU kernel has loaded it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tapr.search.kernels.base import Bank, Kernel, Level, Rows
from tapr.search.kernels.values import HostValues, Values
from tapr.search.prefilter.bound import allowance
from tapr.search.prefilter.candidates import PooledQuery
from tapr.search.prefilter.limit import limit_of
from tapr.types import Float32

if TYPE_CHECKING:
    from tapr.search.kernels.gpu import GpuKernel
    from tapr.search.prefilter.gpu import DeviceResemblance
    from tapr.search.prefilter.gpu_records import BankRecords
    from tapr.search.stages.job import Job

MAX_PICTURES_BOUNDED_AT_ONCE = 1 << 24  # benchmarks/first_stage_gpu.py


@dataclass(frozen=True, eq=False)
class DeviceBank:
    """A bank whose summaries lie in a GPU's memory."""

    gpu: GpuKernel
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
        """Whether summaries are on the device too, or outlines alone."""
        return self.records.summarised is not None

    def stage(self, job: Job, last: Level) -> DeviceSummaries:
        return DeviceSummaries(self, job, last)


@dataclass(frozen=True, eq=False)
class DeviceSummaries:
    """As stages.summaries.Summaries, for one query."""

    device: DeviceBank
    job: Job
    last: Level
    min_pictures: int = 0

    @cached_property
    def _found(self) -> DeviceResemblance:
        from tapr.search.prefilter.gpu import resemblance_on

        (query,) = self.job.queries
        pooled = PooledQuery.of(query)
        return self.device.gpu.alone(lambda: resemblance_on(pooled, self.device.records, self._rows()))

    def promise(self) -> Values:
        from tapr.search.kernels.gpu_values import DeviceValues

        return DeviceValues(self._found.promise[None], self.device.gpu.alone)

    def bounds(self, queries: Sequence[int], rows: Any, floors: Float32 | None) -> HostValues:
        """Bound these rows (on the device; None: all). Only those that reach the floor come to the host."""
        assert floors is not None
        count, step = len(self._found), MAX_PICTURES_BOUNDED_AT_ONCE
        pieces = [rows]
        if rows is None and count > step:
            pieces = [range(start, min(count, start + step)) for start in range(0, count, step)]
        found = [self.device.gpu.alone(partial(self._bounded, piece, floors[0])) for piece in pieces]
        return HostValues(
            np.concatenate([highest for _, highest in found])[None], np.concatenate([r for r, _ in found])
        )

    def _bounded(self, piece: Any, floor: np.float32) -> tuple[Rows, Float32]:
        import torch

        from tapr.search.prefilter.gpu import DeviceProbes, limits_on, raised

        (query,), bank, device = self.job.queries, self.job.bank, self.device
        assert bank.subspaces is not None
        if piece is not None:
            of_range = isinstance(piece, range)
            piece = torch.arange(piece.start, piece.stop, device=device.gpu.device) if of_range else piece.sort()[0]
        limit, left, highest = limit_of(query, bank.subspaces, self.job.locals_count), piece, None
        for closer in (False, True)[: 1 + device.closer]:
            probes = DeviceProbes.of(limit, closer, device.gpu.device)
            rows, targets = self._found.at(left)
            bounds = raised(
                limits_on(probes, device.records, rows, None if closer else targets),
                allowance(limit, device.reader, self.last, self.job.locals_count, probes.lost),
            )
            bounds = bounds if highest is None else bounds.minimum(highest)
            (kept,) = (bounds >= float(floor)).nonzero(as_tuple=True)
            highest, left = bounds[kept], kept if left is None else left[kept]
        assert highest is not None
        return left.cpu().numpy(), highest.cpu().numpy()

    def _rows(self) -> Any:
        """The searched rows on the device; None: all of the bank."""
        import torch

        from tapr.search.kernels.gpu_pack import upload

        rows, device = self.job.selection.rows, self.device.gpu.device
        if rows is None:
            return None
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return torch.arange(int(rows[0]), int(rows[-1]) + 1, device=device)
        return upload([rows], device)[0]


def device_bank_of(gpu: GpuKernel, bank: Bank, compiled: Kernel | None, unasked: bool) -> DeviceBank | None:
    """Hold the bank's summaries on the device, if they fit; `unasked`: only if its vectors do not.

    Vectors that do not fit are read where they lie, by the processor's compiled kernel if there is one.
    """
    if bank.subspaces is None:
        return None
    held = gpu.memory.resident(bank, gpu.levels(bank)[-1].stored) is not None
    if held and unasked:
        return None
    from tapr.search.prefilter.gpu_records import records_on

    records = records_on(gpu, bank)
    return None if records is None else DeviceBank(gpu, records, gpu if held else compiled or gpu)
