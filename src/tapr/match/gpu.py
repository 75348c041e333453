"""Scoring on a GPU: the fused Triton kernels, the same in plain torch, and banks that live on the device.

`GpuKernel` needs torch with CUDA and Triton; `TorchKernel` needs torch alone and runs anywhere torch does.
`GpuBank` keeps a bank in the device's memory, or streams it there in pieces when it does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.errors import BadInput
from tapr.gallery.block import Block
from tapr.match.base import Bank, Kernel
from tapr.query import CompiledQuery

ScanPrecision = Literal["fp16", "int8"]

PROBES_AT_ONCE = 2304  # of all queries in one sweep: 32 queries of 72, 18 full tiles
QUERIES_AT_ONCE = 64
PIECE_BYTES = 256 << 20  # of a streamed bank, in flight twice
RESIDENT_SHARE = 0.85  # of the device's free memory, that a bank may take


def import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise BadInput("scoring on a GPU needs torch: install tapr[gpu], or choose the CPU kernel") from error
    return torch


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows of a bank as tensors on one device, d padded with zeros to a multiple of 16."""

    global_vectors: Any  # (B, d) fp16
    local_vectors: Any  # (B, M, d) fp16, or int8 codes
    scales: Any = None  # (B, M) float32 when they are codes
    longest: float = float("inf")  # length of the longest local vector, where it is known

    def __len__(self) -> int:
        return len(self.global_vectors)

    def __getitem__(self, part: slice) -> DeviceRows:
        scales = None if self.scales is None else self.scales[part]
        return DeviceRows(self.global_vectors[part], self.local_vectors[part], scales, self.longest)


class DeviceKernel(Kernel, Protocol):
    """A kernel whose rows may already be on its device."""

    @property
    def device(self) -> Any: ...

    @property
    def precision(self) -> ScanPrecision | None: ...

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows) -> Any:
        """-> (Q, B) float32 tensor on the device"""


class GpuKernel:
    """The fused kernels. A block with both precisions is read as `precision` says, fp16 if it says nothing."""

    name = "cuda-triton"

    def __init__(self, device: str = "cuda", precision: ScanPrecision | None = None) -> None:
        torch = import_torch()
        try:
            import triton
        except ImportError as error:
            raise BadInput("the fused GPU kernel needs Triton: install triton, or choose the torch kernel") from error
        self.device = torch.device(device)
        self.precision = precision
        if self.device.type != "cuda" and not triton.knobs.runtime.interpret:
            raise BadInput(f"the fused GPU kernel cannot run on {device!r}: give a CUDA device")
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise BadInput("torch sees no CUDA device: use the CPU kernel, or install torch for your GPU's driver")
        if self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) < (8, 0):
            raise BadInput("the fused GPU kernel needs a GPU of compute capability 8.0 or more: use the torch kernel")

    def score(self, queries: Sequence[CompiledQuery], block: Block) -> Float32:
        return to_numpy(self.score_rows(queries, upload(block, self.device, self.precision)))

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows) -> Any:
        from tapr.match import gpu_kernels
        from tapr.match.gpu_pack import pack

        torch = import_torch()
        if rows.local_vectors.shape[1] > gpu_kernels.MAX_LOCALS:
            raise BadInput(
                f"the fused GPU kernel reads at most {gpu_kernels.MAX_LOCALS} local vectors a picture, "
                f"this bank has {rows.local_vectors.shape[1]}: choose the torch kernel"
            )
        if not len(queries) or not len(rows):
            return torch.zeros((len(queries), len(rows)), device=self.device)
        dim = rows.local_vectors.shape[2]
        precision = "fp16" if rows.scales is None else "int8"
        scores = [
            gpu_kernels.score_rows(
                rows.local_vectors,
                rows.scales,
                rows.global_vectors,
                pack(group, dim, precision, self.device),
                rows.longest,
            )
            for group in groups_of(queries)
        ]
        return torch.cat(scores) if len(scores) > 1 else scores[0]


class TorchKernel:
    """The same mathematics in float32 with plain torch operations, in blocks; any device, no Triton."""

    name = "torch"

    def __init__(self, device: str = "cpu", precision: ScanPrecision | None = None) -> None:
        torch = import_torch()
        self.device = torch.device(device)
        self.precision = precision
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise BadInput("torch sees no CUDA device: use the CPU kernel, or install torch for your GPU's driver")

    def score(self, queries: Sequence[CompiledQuery], block: Block) -> Float32:
        return to_numpy(self.score_rows(queries, upload(block, self.device, self.precision)))

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows) -> Any:
        torch = import_torch()
        scores = torch.zeros((len(queries), len(rows)), device=self.device)
        dim = rows.global_vectors.shape[1]
        products = 1 << 24  # numbers in the largest intermediate
        for q, query in enumerate(queries):
            probes = self._padded(query.probes, dim)  # (n, d)
            target = self._padded(query.target[None], dim)[0]
            weights = torch.from_numpy(query.weights.astype(np.float32)).to(self.device)
            step = max(1, products // max(1, rows.local_vectors.shape[1] * max(dim, len(probes))))
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                total = part.global_vectors.float() @ target * query.target_weight
                if len(probes):
                    s = part.local_vectors.float() @ probes.T  # (B, M, n)
                    if part.scales is not None:
                        s = s * part.scales[..., None]
                    total = total + (torch.softmax(s / query.tau, dim=1) * s).sum(dim=1) @ weights
                scores[q, start : start + step] = total
        return scores

    def _padded(self, vectors: Float32, dim: int) -> Any:
        torch = import_torch()
        padded = np.zeros((len(vectors), dim), np.float32)
        padded[:, : vectors.shape[1]] = vectors
        return torch.from_numpy(padded).to(self.device)


def groups_of(queries: Sequence[CompiledQuery]) -> Iterator[Sequence[CompiledQuery]]:
    """Cut queries, in order, into groups for one sweep each: as many as fit its probes, at least one."""
    start, probes = 0, 0
    for position, query in enumerate(queries):
        full = probes + len(query.probes) > PROBES_AT_ONCE or position - start == QUERIES_AT_ONCE
        if full and position > start:
            yield queries[start:position]
            start, probes = position, 0
        probes += len(query.probes)
    yield queries[start:]


def upload(block: Block, device: Any, precision: ScanPrecision | None = None) -> DeviceRows:
    """The block's rows on the device, in one precision: as asked, else fp16 where the bank has it."""
    torch = import_torch()

    def to(array: NDArray[Any]) -> Any:
        return torch.from_numpy(np.array(array, order="C")).to(device)  # a copy: the file's own pages are read-only

    locals_, scales = scanned(block, precision)
    return DeviceRows(to(_widened(block.global_vectors)), to(_widened(locals_)), None if scales is None else to(scales))


def scanned(block: Block, precision: ScanPrecision | None) -> tuple[NDArray[Any], Float32 | None]:
    """The block's local vectors and no scales, or its codes and their scales."""
    if precision == "int8" or (precision is None and block.local_vectors is None):
        if block.local_codes is None or block.local_scales is None:
            raise BadInput("this bank has no int8 codes: scan it as fp16, or build it with --precision both")
        return block.local_codes, block.local_scales
    if block.local_vectors is None:
        raise BadInput("this bank has int8 codes alone: scan it as int8, or build it with --precision both")
    return block.local_vectors, None


def padded_dim(dim: int) -> int:
    return -(-dim // 16) * 16


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """(..., d) with zeros after each vector, up to a multiple of 16: the copy engine's rows start on 16 bytes."""
    extra = padded_dim(array.shape[-1]) - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, extra)]) if extra else array


def to_numpy(scores: Any) -> Float32:
    return np.asarray(scores.cpu().numpy(), np.float32)


def largest(scores: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row, equal scores by lower position: (Q, N) -> positions, scores, both (Q, k).

    torch.topk leaves the order of equal scores open, so it is given numbers of which no two are equal: the score's
    bits, made to sort like the score, above the position counted from the end.
    """
    torch = import_torch()
    count = scores.shape[1]
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # + 0.0: minus zero is zero
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    from_end = torch.arange(count - 1, -1, -1, device=scores.device)
    keys = torch.topk((ordered << 32) + from_end, min(k, count), dim=1).values
    positions = count - 1 - (keys & 0xFFFFFFFF)
    return positions, scores.gather(1, positions)


class GpuBank:
    """A bank to be searched many times: resident on the kernel's device, or streamed to it when it does not fit."""

    def __init__(self, bank: Bank, kernel: DeviceKernel, memory: int | None = None) -> None:
        """`memory`: bytes the bank may take on the device; by default most of what is free there."""
        self._bank = bank
        self._kernel = kernel
        self._rows = self._resident() if self.bytes <= self._allowed(memory) else None

    @property
    def is_resident(self) -> bool:
        return self._rows is not None

    @property
    def bytes(self) -> int:
        """What the bank takes on the device."""
        dim, locals_ = padded_dim(self._bank.card.dim), self._bank.card.locals_count
        a_row = 2 * dim + (locals_ * (dim + 4) if self._codes else 2 * locals_ * dim)
        return self._bank.row_count * a_row

    @property
    def _codes(self) -> bool:
        return self._kernel.precision == "int8" or self._bank.precision == "int8"

    def scores(self, queries: Sequence[CompiledQuery]) -> Any:
        """(Q, N) on the device, in gallery order."""
        torch = import_torch()
        scores = (
            self._kernel.score_rows(queries, self._rows) if self._rows is not None else self._streamed_scores(queries)
        )
        rows = self._bank.rows
        if len(rows) == self._bank.row_count and bool((rows == np.arange(len(rows))).all()):
            return scores
        return scores[:, torch.from_numpy(np.array(rows)).to(scores.device)]

    def score_many(self, queries: Sequence[CompiledQuery]) -> Float32:
        return to_numpy(self.scores(queries))  # (Q, N)

    def top_k(self, queries: Sequence[CompiledQuery], k: int) -> tuple[NDArray[np.int64], Float32]:
        """Gallery positions and scores of the k best, both (Q, k); equal scores by lower position."""
        positions, scores = largest(self.scores(queries), k)
        return positions.cpu().numpy(), to_numpy(scores)

    def _allowed(self, memory: int | None) -> float:
        if memory is not None:
            return memory
        if self._kernel.device.type != "cuda":
            return float("inf")
        free: int = import_torch().cuda.mem_get_info(self._kernel.device)[0]
        return free * RESIDENT_SHARE

    def _empty(self, count: int, pinned: bool = False) -> DeviceRows:
        """Room for rows, on the device or in pinned memory of the host."""
        torch = import_torch()
        dim, locals_ = padded_dim(self._bank.card.dim), self._bank.card.locals_count
        device = torch.device("cpu") if pinned else self._kernel.device
        pin = pinned and self._kernel.device.type == "cuda"

        def room(shape: tuple[int, ...], dtype: Any) -> Any:
            return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pin)

        kind = torch.int8 if self._codes else torch.float16
        scales = room((count, locals_), torch.float32) if self._codes else None
        return DeviceRows(room((count, dim), torch.float16), room((count, locals_, dim), kind), scales)

    def _pieces(self) -> Iterator[tuple[int, Block]]:
        """The bank's rows in pieces of at most PIECE_BYTES, with each piece's first row."""
        step = self._piece_rows()
        for block in self._bank.blocks():
            for start in range(0, len(block), step):
                part = slice(start, start + step)
                yield (
                    block.start + start,
                    Block(
                        block.start + start,
                        block.global_vectors[part],
                        None if block.local_vectors is None else block.local_vectors[part],
                        None if block.local_codes is None else block.local_codes[part],
                        None if block.local_scales is None else block.local_scales[part],
                    ),
                )

    def _piece_rows(self) -> int:
        return max(1, PIECE_BYTES * self._bank.row_count // max(1, self.bytes))

    def _streamed(self) -> Iterator[tuple[int, DeviceRows]]:
        """Rows on the device, piece by piece; the next piece travels while the caller's work on this one runs."""
        torch = import_torch()
        on_gpu = self._kernel.device.type == "cuda"
        count = min(self._piece_rows(), max(1, self._bank.row_count))
        host = [self._empty(count, pinned=True) for _ in range(2)]
        device = [self._empty(count) for _ in range(2)]
        if not on_gpu:
            for start, piece in self._pieces():
                self._fill(host[0], piece)
                yield start, host[0][: len(piece)]
            return
        copying, computing = torch.cuda.Stream(self._kernel.device), torch.cuda.current_stream(self._kernel.device)
        copied = [torch.cuda.Event() for _ in range(2)]
        used = [torch.cuda.Event() for _ in range(2)]
        for turn, (start, piece) in enumerate(self._pieces()):
            side = turn % 2
            copied[side].synchronize()  # the host buffer's last journey is over
            self._fill(host[side], piece)
            copying.wait_event(used[side])
            with torch.cuda.stream(copying):
                for there, here in _pairs(device[side], host[side]):
                    there[: len(piece)].copy_(here[: len(piece)], non_blocking=True)
                copied[side].record(copying)
            computing.wait_event(copied[side])
            yield start, device[side][: len(piece)]
            used[side].record(computing)
        computing.synchronize()  # the buffers outlive the work that reads them

    def _fill(self, room: DeviceRows, piece: Block) -> None:
        torch = import_torch()
        locals_, scales = scanned(piece, "int8" if self._codes else "fp16")
        dim = piece.global_vectors.shape[-1]
        room.global_vectors[: len(piece), :dim] = torch.from_numpy(np.array(piece.global_vectors))
        room.local_vectors[: len(piece), :, :dim] = torch.from_numpy(np.array(locals_))
        if scales is not None:
            room.scales[: len(piece)] = torch.from_numpy(np.array(scales))

    def _streamed_scores(self, queries: Sequence[CompiledQuery]) -> Any:
        scores = import_torch().zeros((len(queries), self._bank.row_count), device=self._kernel.device)
        for start, rows in self._streamed():
            scores[:, start : start + len(rows)] = self._kernel.score_rows(queries, rows)
        return scores

    def _resident(self) -> DeviceRows:
        rows = self._empty(self._bank.row_count)
        longest = 0.0
        for start, piece in self._streamed():
            for there, here in _pairs(rows, piece):
                there[start : start + len(piece)] = here
            longest = max(longest, longest_of(piece))
        return DeviceRows(rows.global_vectors, rows.local_vectors, rows.scales, longest)


def _pairs(one: DeviceRows, other: DeviceRows) -> list[tuple[Any, Any]]:
    pairs = [(one.global_vectors, other.global_vectors), (one.local_vectors, other.local_vectors)]
    return pairs if one.scales is None else [*pairs, (one.scales, other.scales)]


def longest_of(rows: DeviceRows) -> float:
    """The length of the longest local vector; with it the kernel knows whether exponents can overflow."""
    if not len(rows):
        return 0.0
    lengths = rows.local_vectors.float().norm(dim=-1)
    return float((lengths if rows.scales is None else lengths * rows.scales).max())
