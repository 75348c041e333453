"""Banks in a device's memory. Searched banks stay there while there is room; others are streamed in blocks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.search.kernels.base import Bank, Level, Rows
from tapr.search.kernels.row_blocks import cuts_of
from tapr.store.block import Block
from tapr.utils.threads import thread_count

PIECE_BYTES = 256 << 20  # per block of streamed rows, or of rows selected on the device
STAGE_BYTES = 32 << 20  # per pinned host buffer; there are two: one is filled while the other is copied
RESIDENT_SHARE = 0.85  # share of the free device memory that banks may use
_WORTH_THREADS = 1 << 20  # bytes from which several threads copy
FEW = 4  # rows are selected on the device if fewer than 1 in 4 are wanted; otherwise all are scored


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows of a bank in the format of a level. d is padded to a multiple of 16 for the GPU's copy engine."""

    global_vectors: Any  # (B, d) fp16
    local_vectors: Any  # (B, M, d) fp16, or int8 codes
    scales: Any = None  # (B, M) float32 for codes

    @classmethod
    def room(cls, bank: Bank, level: Level, count: int, device: Any, pinned: bool = False) -> DeviceRows:
        """Allocate tensors for this many rows."""
        dim, locals_ = padded_dim(bank.card.dim), bank.card.locals_count
        make = torch.empty if dim == bank.card.dim else torch.zeros

        def tensor(dtype: Any, *shape: int) -> Any:
            return make((count, *shape), dtype=dtype, device=device, pin_memory=pinned)

        return cls(
            tensor(torch.float16, dim),
            tensor(torch.int8 if level.codes else torch.float16, locals_, dim),
            tensor(torch.float32, locals_) if level.codes else None,
        )

    @property
    def level(self) -> Level:
        return Level(self.scales is not None)

    @property
    def tensors(self) -> list[Any]:
        return [tensor for tensor in (self.global_vectors, self.local_vectors, self.scales) if tensor is not None]

    @property
    def bytes(self) -> int:
        return sum(int(tensor.nbytes) for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.global_vectors)

    def __getitem__(self, part: Any) -> DeviceRows:
        """A view for a slice; a copy for a tensor of row numbers."""
        return DeviceRows(*(tensor[part] for tensor in self.tensors))


def padded_dim(dim: int) -> int:
    return -(-dim // 16) * 16


def bytes_per_row(bank: Bank, level: Level) -> int:
    dim, locals_ = padded_dim(bank.card.dim), bank.card.locals_count
    return 2 * dim + locals_ * (dim + 4 if level.codes else 2 * dim)


class Sized(Protocol):
    @property
    def bytes(self) -> int: ...


Thing = TypeVar("Thing", bound=Sized)


@dataclass(eq=False)
class _Held:
    thing: Any  # Sized
    used: int  # number of the last search that used it


class DeviceMemory:
    """The banks in one device's memory. A bank is dropped with its stored rows, or if another one needs the room."""

    def __init__(self, device: Any, limit: int | None = None) -> None:
        """`limit`: bytes for banks; by default most of the free memory, and 0 if the device is the CPU."""
        self._device, self._limit = device, limit
        self._held: WeakKeyDictionary[object, dict[Hashable, _Held]] = WeakKeyDictionary()  # by Bank.stored
        self._lock, self._searches = Lock(), 0

    def pieces(self, bank: Bank, level: Level, rows: Rows | None) -> Iterator[tuple[DeviceRows, Any]]:
        """The rows (None: all) in order: blocks on the device, and which rows of a block count (None: all).

        A block may be overwritten once the next one is requested.
        """
        held = self.resident(bank, level)
        if held is None:
            yield from ((piece, None) for piece in self._streamed_rows(bank, level, rows))
        elif rows is None:
            yield held, None
        elif len(rows) * FEW >= len(held):
            yield held, torch.from_numpy(np.array(rows)).to(self._device)
        else:
            wanted = torch.from_numpy(np.array(rows)).to(self._device)
            for part in wanted.split(max(1, PIECE_BYTES // bytes_per_row(bank, level))):
                yield held[part], None

    def _streamed_rows(self, bank: Bank, level: Level, rows: Rows | None) -> Iterator[DeviceRows]:
        """Rows copied from the host; in one block if they are few, so that they are scored at once."""
        count = bank.row_count if rows is None else len(rows)
        if not 0 < count * bytes_per_row(bank, level) <= PIECE_BYTES:
            yield from streamed(bank, level, rows, self._device)
            return
        room = DeviceRows.room(bank, level, count, self._device)
        for _ in streamed(bank, level, rows, self._device, room):
            pass
        yield room

    def resident(self, bank: Bank, level: Level) -> DeviceRows | None:
        """All rows of the bank, copied now if necessary; None if there is no room."""

        def copied() -> DeviceRows:
            room = DeviceRows.room(bank, level, bank.row_count, self._device)
            for _ in streamed(bank, level, None, self._device, room):
                pass
            return room

        return self.hold(bank, level, bank.row_count * bytes_per_row(bank, level), copied)

    def hold(self, bank: Bank, key: Hashable, needed: int, make: Callable[[], Thing]) -> Thing | None:
        """What `make` makes of all rows of the bank, in `needed` bytes, made now if necessary; None: no room."""
        with self._lock:
            self._searches += 1
            held = self._held.setdefault(bank.stored, {})
            if key not in held:
                if not self._make_room(bank, needed):
                    return None
                held[key] = _Held(make(), 0)
            held[key].used = self._searches
            thing: Thing = held[key].thing
            return thing

    def _make_room(self, bank: Bank, needed: int) -> bool:
        """Drop other banks, least recently used first, if that makes enough room. What is of one bank stays."""
        free = self._free()
        others = [
            (entry.used, other, held)
            for stored, held in self._held.items()
            if stored is not bank.stored
            for other, entry in held.items()
        ]
        if needed > free + sum(held[other].thing.bytes for _, other, held in others):
            return False
        for _, other, held in sorted(others, key=lambda entry: entry[0]):
            if needed <= free:
                break
            free += held.pop(other).thing.bytes
            if self._device.type == "cuda":
                torch.cuda.empty_cache()  # makes free memory contiguous
        return True

    def _free(self) -> float:
        if self._limit is not None:
            return self._limit - sum(int(entry.thing.bytes) for held in self._held.values() for entry in held.values())
        if self._device.type != "cuda":
            return 0
        free: int = torch.cuda.mem_get_info(self._device)[0]
        spare = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return float(free + spare) * RESIDENT_SHARE


def streamed(
    bank: Bank, level: Level, rows: Rows | None, device: Any, room: DeviceRows | None = None
) -> Iterator[DeviceRows]:
    """Copy rows to the device block by block: into `room`, or into a buffer that is reused.

    The next block is read and copied while the caller works on this one.
    """
    count = bank.row_count if rows is None else len(rows)
    here = device.type != "cuda"
    most = PIECE_BYTES if room is None or here else min(PIECE_BYTES, STAGE_BYTES)
    step = max(1, min(count, most // bytes_per_row(bank, level)))
    buffers = [] if room is not None else [DeviceRows.room(bank, level, step, device) for _ in range(1 if here else 2)]
    done = 0

    def place(side: int, length: int) -> DeviceRows:
        return buffers[side][:length] if room is None else room[done : done + length]

    if here:
        for block, chosen, length in cuts_of(bank, rows, step):
            piece = place(0, length)
            _fill(piece, block, chosen)
            yield piece
            done += length
        return
    host = [DeviceRows.room(bank, level, step, "cpu", pinned=True) for _ in range(2)]
    copying, computing = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    copying.wait_stream(computing)  # `room` may still be in use
    copied, used = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))
    threads = thread_count()
    for number, cuts in enumerate(_stages(cuts_of(bank, rows, -(-step // threads)), step)):
        side, length = number % 2, sum(cut[2] for cut in cuts)
        source, piece = host[side][:length], place(side, length)
        copied[side].synchronize()  # the last copy from this host buffer is complete
        _fill_all(source, cuts, threads)
        copying.wait_event(used[side])
        with torch.cuda.stream(copying):
            for there, tensor in zip(piece.tensors, source.tensors, strict=True):
                there.copy_(tensor, non_blocking=True)
            copied[side].record(copying)
        computing.wait_event(copied[side])
        yield piece
        used[side].record(computing)
        done += length


Cut = tuple[Block, slice | Rows, int]  # (block, selected rows, their number)


def _stages(cuts: Iterable[Cut], step: int) -> Iterator[list[Cut]]:
    """Group cuts up to `step` rows."""
    stage: list[Cut] = []
    for cut in cuts:
        if stage and sum(other[2] for other in stage) + cut[2] > step:
            yield stage
            stage = []
        stage.append(cut)
    if stage:
        yield stage


def _fill_all(room: DeviceRows, cuts: Sequence[Cut], threads: int) -> None:
    """Copy the cuts into `room`, one after the other, using all threads."""
    ends = np.cumsum([length for _, _, length in cuts]).tolist()
    threads = threads if room.bytes > _WORTH_THREADS else 1

    def fill(run: range) -> None:
        for number in run:
            block, chosen, length = cuts[number]
            _fill(room[ends[number] - length : ends[number]], block, chosen)

    step = -(-len(cuts) // threads)
    runs = [range(start, min(len(cuts), start + step)) for start in range(0, len(cuts), step)]
    for _ in map(fill, runs) if len(runs) == 1 else _pool(threads).map(fill, runs):
        pass


def _fill(room: DeviceRows, block: Block, chosen: Any) -> None:
    """Copy these rows of a block into host tensors. No other row is read."""

    def into(tensor: Any, array: NDArray[Any] | None) -> None:
        assert array is not None
        there, source = tensor.numpy(), np.asarray(array)
        if isinstance(chosen, slice) or there.shape[-1] != source.shape[-1]:
            there[..., : source.shape[-1]] = source[chosen]
        else:
            np.take(source, chosen, axis=0, out=there, mode="clip")  # other modes make an extra copy

    into(room.global_vectors, block.global_vectors)
    into(room.local_vectors, block.local_codes if room.level.codes else block.local_vectors)
    if room.level.codes:
        into(room.scales, block.local_scales)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="tapr-gather")
