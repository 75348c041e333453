"""A bank's records in a GPU's memory, field by field: uploaded once, and kept there as banks are (gpu_bank.py).

Records travel as the bytes that they are on disk, and are taken apart on the device by the offsets of
`summary.outline_type` and `summary.summary_type`. What the kernels must know of a record is a `RecordShape`.

Candidates and first bounds need the pooled vectors and the outlines. What bounds more closely, summaries and global
vectors, is held only where there is room beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.search.kernels.base import Bank
from tapr.store.block import Block
from tapr.store.summary import outline_type, summary_type

if TYPE_CHECKING:
    from tapr.search.kernels.gpu import GpuKernel

_STAGE_BYTES = 32 << 20  # that travel at a time
_BY_PLACE = ("shares", "rests")  # (places, numbers) in a record; on the device (numbers, places), to be read in a row
_KINDS = {"<f4": torch.float32, "|i1": torch.int8, "|u1": torch.uint8}


@dataclass(frozen=True)
class RecordShape:
    """How many directions a record has: the pooled mean, which lies elsewhere, and then those in nibbles; of what."""

    mean: int  # 1: the first share is that of the mean
    packed: int
    places: int
    blocks: int

    @classmethod
    def of(cls, kind: np.dtype[Any]) -> RecordShape:
        (places, shares), packed = kind["shares"].shape, kind["codes"].shape[0]
        return cls(shares - packed, packed, places, kind["rests"].shape[1])


@dataclass(frozen=True, eq=False)
class DeviceRecords:
    """One record of every row."""

    shape: RecordShape
    fields: dict[str, Any]  # by their names in record_type: (N, ...)

    @classmethod
    def room(cls, kind: np.dtype[Any], count: int, device: Any) -> DeviceRecords:
        fields = {}
        for name in kind.names or ():
            shape = kind[name].shape[::-1] if name in _BY_PLACE else kind[name].shape
            fields[name] = torch.empty((count, *shape), dtype=_KINDS[kind[name].base.str], device=device)
        return cls(RecordShape.of(kind), fields)

    def fill(self, start: int, records: Any, kind: np.dtype[Any]) -> None:
        """From `start` on, by the bytes (B, itemsize) of some records."""
        for name, tensor in self.fields.items():
            if not tensor.numel():  # a picture so small has no further directions
                continue
            assert kind.fields is not None
            field, offset = kind.fields[name][:2]
            part = records[:, offset : offset + field.itemsize].contiguous().view(tensor.dtype)
            part = part.view(len(records), *field.shape)
            tensor[start : start + len(records)] = part.transpose(1, 2) if name in _BY_PLACE else part

    @property
    def bytes(self) -> int:
        return bytes_of(*self.fields.values())


@dataclass(frozen=True, eq=False)
class Outlined:
    """What candidates and first bounds are made of."""

    pooled: Any  # (N, 2 d) int8
    outlines: DeviceRecords

    @property
    def bytes(self) -> int:
        return bytes_of(self.pooled) + self.outlines.bytes


@dataclass(frozen=True, eq=False)
class Summarised:
    """What closer bounds need beside it."""

    global_vectors: Any  # (N, d) fp16
    summaries: DeviceRecords

    @property
    def bytes(self) -> int:
        return bytes_of(self.global_vectors) + self.summaries.bytes


@dataclass(frozen=True, eq=False)
class BankRecords:
    outlined: Outlined
    summarised: Summarised | None  # None: there is no room for it


def bytes_of(*tensors: Any) -> int:
    return sum(int(tensor.nbytes) for tensor in tensors)


def bytes_per_picture(count: int, dim: int) -> tuple[int, int]:
    """Of what is outlined, and of what is summarised."""
    return 2 * dim + outline_type(count, dim).itemsize, 2 * dim + summary_type(count, dim).itemsize


def records_on(kernel: GpuKernel, bank: Bank) -> BankRecords | None:
    """The bank's records on the kernel's device; None if there are none, or no room for the outlines."""
    if bank.subspaces is None:
        return None
    count, dim, rows, device = bank.card.locals_count, bank.card.dim, bank.row_count, kernel.device
    sizes = bytes_per_picture(count, dim)

    def outlined() -> Outlined:
        kind = outline_type(count, dim)
        pooled = torch.empty((rows, 2 * dim), dtype=torch.int8, device=device)
        outlines = DeviceRecords.room(kind, rows, device)
        for start, block in _stages(bank, sizes[0]):
            assert block.pooled is not None
            pooled[start : start + len(block)] = _sent(block.pooled, device)
            outlines.fill(start, _sent(_bytes(block.outlines), device), kind)
        return Outlined(pooled, outlines)

    def summarised() -> Summarised:
        kind = summary_type(count, dim)
        global_vectors = torch.empty((rows, dim), dtype=torch.float16, device=device)
        summaries = DeviceRecords.room(kind, rows, device)
        for start, block in _stages(bank, sizes[1]):
            global_vectors[start : start + len(block)] = _sent(block.global_vectors, device)
            summaries.fill(start, _sent(_bytes(block.summaries), device), kind)
        return Summarised(global_vectors, summaries)

    held = kernel.memory.hold(bank, "outlined", rows * sizes[0], outlined)
    if held is None:
        return None
    return BankRecords(held, kernel.memory.hold(bank, "summarised", rows * sizes[1], summarised))


def _stages(bank: Bank, bytes_per_row: int) -> Iterator[tuple[int, Block]]:
    step = max(1, _STAGE_BYTES // bytes_per_row)
    for block in bank.blocks():
        for start in range(0, len(block), step):
            yield block.start + start, block.take(slice(start, start + step))


def _sent(array: NDArray[Any], device: Any) -> Any:
    return torch.from_numpy(np.array(array)).to(device)  # a copy: mapped files are read-only, which torch warns of


def _bytes(records: NDArray[np.void] | None) -> NDArray[np.uint8]:
    assert records is not None
    return np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
