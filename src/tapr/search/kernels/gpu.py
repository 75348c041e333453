"""Scoring on a GPU with fused Triton kernels, or on any device with plain torch.

GpuKernel needs torch with CUDA and Triton. TorchKernel only needs torch.
A row's score has the same bits whichever other rows are scored with it. For TorchKernel, which uses the exact
arithmetic of exact.py, this also holds for other queries, any number of threads and any device. GpuKernel chooses its
tiles by the total number of probes, and the order of a sum follows the tiles. So the score of a query alone and in a
batch may differ in the last bits, by less than `bounds.radius` allows for. Exact searches are not affected: they
re-score fp16 vectors for each query alone, and so return bit for bit what a search for that query alone returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.score.compile import CompiledQuery
from tapr.search.kernels import gpu_bank
from tapr.search.kernels.base import (
    COARSE_CODES,
    CODES,
    VECTORS,
    Bank,
    BoundingKernel,
    Level,
    Rows,
    SketchingKernel,
    finest,
)
from tapr.search.kernels.bounds import ErrorBound, error_bound, row_errors
from tapr.search.kernels.exact import ExactQuery, exact_query, products, soft_means, total
from tapr.search.kernels.gpu_bank import DeviceMemory, DeviceRows, padded_dim
from tapr.search.kernels.gpu_pack import MAX_FEW, MAX_LOCALS, PackedQueries, upload
from tapr.search.kernels.gpu_packer import QueryPacker
from tapr.search.kernels.gpu_values import DeviceValues, RecordedValues
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.kernels.values import Picked, Values
from tapr.search.plan import groups_of
from tapr.search.prefilter.device_bank import DeviceBank, device_bank_of
from tapr.types import Float32

if TYPE_CHECKING:
    from tapr.search.kernels.cpu import CpuKernel

P = ParamSpec("P")
Result = TypeVar("Result")

PICTURES_AT_ONCE = 256  # per block of TorchKernel
_ALIGNED = 16  # rows
MAPPED = 512  # pictures per block of GpuKernel.map


def one_at_a_time(method: Callable[Concatenate[Any, P], Result]) -> Callable[Concatenate[Any, P], Result]:
    """Decorator: one call at a time. The device runs one at a time anyway, and the caches here are not thread-safe."""

    @wraps(method)
    def locked(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Result:
        with self._lock:
            return method(self, *arguments, **named)

    return locked


class DeviceKernel(ABC):
    """A kernel that keeps searched banks in the device's memory and ranks there."""

    name: str
    gains_by_summaries = False  # a bank that fits the device is read faster there than its summaries on this machine

    def __init__(self, device: str, memory: int | None = None) -> None:
        """`memory`: bytes for banks on the device; by default most of its free memory."""
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise BadInput("torch sees no CUDA device: use the CPU kernel, or install torch for your GPU's driver")
        self.memory = DeviceMemory(self.device, memory)
        self._lock = RLock()
        self._known_errors: WeakKeyDictionary[object, Any] = WeakKeyDictionary()  # by Bank.stored

    @one_at_a_time
    def alone(self, work: Callable[[], Result]) -> Result:
        """Do this while nothing else of this kernel uses the device: a search may be recorded."""
        return work()

    @one_at_a_time
    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        """Codes are used only if the vectors do not fit the device: otherwise re-scoring costs more than codes save."""
        if bank.precision != "both":
            return (finest(bank),)
        return (CODES, VECTORS) if self.memory.resident(bank, VECTORS) is None else (VECTORS,)

    @abstractmethod
    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]: ...

    @abstractmethod
    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows, level: Level) -> Any:
        """Scores as a (Q, B) float32 tensor on the device."""

    def prepare(self, queries: Sequence[CompiledQuery], level: Level) -> None:
        """Prepare the queries for being scored alone."""
        return

    @property
    def sketcher(self) -> SketchingKernel | None:
        return None

    @property
    def bounder(self) -> BoundingKernel:
        return compiled_kernel() or NumpyKernel()

    def device_bank(self, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
        return None

    @one_at_a_time
    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        count = bank.row_count if rows is None else len(rows)
        found = [self._score(group, bank, level, rows).cpu().numpy() for group in groups_of(queries, count)]
        return np.concatenate(found) if found else np.zeros((0, count), np.float32)

    @one_at_a_time
    def bounds(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, rows: Rows | None
    ) -> Values:
        scores = self._score(queries, bank, level, rows)
        if level == last:
            return DeviceValues(scores, self.alone)
        self.prepare(queries, last)  # all at once
        count = bank.card.locals_count
        reaches = [error_bound(query, self, level, last, count) for query in queries]  # while the scan runs
        (numbers,) = upload([np.array([astuple(reach) for reach in reaches])], self.device)
        errors = self._errors(bank)
        errors = errors if rows is None or len(errors) == 1 else errors[upload([rows], self.device)[0]]
        highest = scores + ErrorBound(*numbers.T[:, :, None]).of(errors[None], torch)
        return DeviceValues(torch.nextafter(highest, torch.full_like(highest, torch.inf)), self.alone, likely=scores)

    @one_at_a_time
    def read(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Sequence[Rows]) -> list[Float32]:
        held = self.memory.resident(bank, level.stored)
        if held is None and level.codes and len(queries) > 1:  # in the same batch as in a scan, for the same bits
            unique, places = np.unique(np.concatenate(rows), return_inverse=True)
            scores = self.score(queries, bank, level, unique)
            own = np.split(places, np.cumsum([len(chosen) for chosen in rows])[:-1])
            return [scores[q][chosen] for q, chosen in enumerate(own)]
        if held is None:
            found = []
            for query, chosen in zip(queries, rows, strict=True):
                unique, places = np.unique(chosen, return_inverse=True)
                found.append(self.score([query], bank, level, unique)[0][places])
            return found
        lengths = [len(chosen) for chosen in rows]
        if not sum(lengths):
            return [np.zeros(0, np.float32) for _ in rows]
        (wanted,) = upload([np.concatenate(rows)], self.device)
        every = torch.cat(self._read_held(queries, held, level, wanted.split(lengths))).cpu().numpy()
        return np.split(every, np.cumsum(lengths)[:-1])

    def _read_held(
        self, queries: Sequence[CompiledQuery], held: DeviceRows, level: Level, rows: Sequence[Any]
    ) -> list[Any]:
        """Scores (R,) of rows (R,) on the device, per query. As many queries at once as PIECE_BYTES allows."""
        most = max(1, gpu_bank.PIECE_BYTES * len(held) // max(1, held.bytes))  # rows
        if level.codes and len(queries) > 1:  # in the same batch as in a scan, for the same bits
            every = torch.cat(list(rows))
            if len(every) > len(held):
                whole = self.score_rows(queries, held, level)
                return [whole[q, chosen] for q, chosen in enumerate(rows)]
            scores = torch.cat([self.score_rows(queries, held[part], level) for part in every.split(most)], dim=1)
            return [part[q] for q, part in enumerate(scores.split([len(chosen) for chosen in rows], dim=1))]
        self.prepare(queries, level)
        found: list[Any] = []
        step = max(1, most // max(1, *(len(chosen) + _ALIGNED for chosen in rows)))
        for start in range(0, len(queries), step):
            group = rows[start : start + step]
            # pad to aligned starts: other alignments would compile another kernel
            padded = [torch.nn.functional.pad(chosen, (0, -len(chosen) % _ALIGNED)) for chosen in group]
            picked = held[torch.cat(padded)]
            begin = 0
            for query, chosen, pad in zip(queries[start : start + step], group, padded, strict=True):
                found.append(self.score_rows([query], picked[begin : begin + len(chosen)], level)[0])
                begin += len(pad)
        return found

    def _score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None) -> Any:
        """Scores (Q, R) on the device for ascending rows; None: all rows."""
        count = bank.row_count if rows is None else len(rows)
        scores, done = torch.empty((len(queries), count), device=self.device), 0
        for piece, chosen in self.memory.pieces(bank, level.stored, rows) if count else ():
            part = self.score_rows(queries, piece, level)
            part = part if chosen is None else part[:, chosen]
            if part.shape == scores.shape:
                return part
            scores[:, done : done + part.shape[1]] = part
            done += part.shape[1]
        return scores

    def _errors(self, bank: Bank) -> Any:
        """(R,): the errors of all rows, cached on the device while the rows are the same; (1,) zero without codes."""
        known = self._known_errors.get(bank.stored)
        if known is None:
            known = self._known_errors[bank.stored] = torch.from_numpy(row_errors(bank)).to(self.device)
        return known


def compiled_kernel() -> CpuKernel | None:
    try:
        from tapr.search.kernels.cpu import CpuKernel
    except ImportError:
        return None
    return CpuKernel()


class GpuKernel(DeviceKernel):
    """The fused kernels."""

    name = "cuda-triton"

    def __init__(self, device: str = "cuda", memory: int | None = None) -> None:
        try:
            import triton
        except ImportError as error:
            raise BadInput("the fused GPU kernel needs Triton: install triton, or choose the torch kernel") from error
        super().__init__(device, memory)
        if self.device.type != "cuda" and not triton.knobs.runtime.interpret:
            raise BadInput(f"the fused GPU kernel cannot run on {device!r}: give a CUDA device")
        if self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) < (8, 0):
            raise BadInput("the fused GPU kernel needs a GPU of compute capability 8.0 or more: use the torch kernel")
        from tapr.search.kernels.gpu_graph import Graphs

        self._packer, self._graphs = QueryPacker(self.device), Graphs(self.device)

    @one_at_a_time
    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return self._packer.rounding_loss(query, level)

    @one_at_a_time
    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        """With many probes a scan of codes is limited by the tensor cores: one digit per probe halves the work."""
        levels = super().levels(bank)
        return (COARSE_CODES, *levels) if probes > MAX_FEW and levels[0] == CODES else levels

    @one_at_a_time
    def bounds(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, rows: Rows | None
    ) -> Values:
        held = None if rows is not None or level != last else self.memory.resident(bank, level.stored)
        if held is None or len(queries) > 1 or held.local_vectors.shape[1] > MAX_LOCALS:
            return super().bounds(queries, bank, level, last, rows)

        def play(count: int) -> Picked | None:
            answer = self._graphs.search(self._packer.probes_of(queries[0], level), level, held, count)
            if answer is None:
                return None
            self._packer.set_rounding_loss(queries[0], level, answer.lost)
            return answer.rows, answer.scores

        scan = super().bounds
        return RecordedValues(
            lambda count: self.alone(lambda: play(count)), lambda: scan(queries, bank, level, last, rows)
        )

    def device_bank(self, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
        """Vectors that do not fit are read where they lie, by the processor's compiled kernel if there is one."""
        return self.alone(lambda: device_bank_of(self, bank, compiled_kernel(), unasked))

    def prepare(self, queries: Sequence[CompiledQuery], level: Level) -> None:
        pack = self._packer.pack_together if level.codes else self._packer.pack_alone
        pack(queries, level, padded_dim(queries[0].dim))

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows, level: Level) -> Any:
        _, locals_, dim = rows.local_vectors.shape
        if locals_ > MAX_LOCALS:
            raise BadInput(
                f"the fused GPU kernel reads at most {MAX_LOCALS} local vectors a picture, "
                f"this bank has {locals_}: choose the torch kernel"
            )
        if not len(queries) or not len(rows):
            return torch.zeros((len(queries), len(rows)), device=self.device)
        while True:
            scores = self._sweeps(self._packer.pack_together(queries, level, dim), rows, len(queries))
            if not self._packer.read_errors():  # rarely, a probe needs a second part: then scan again
                return scores

    @one_at_a_time
    def map(self, bank: Bank, rows: Rows | None, function: Callable[[Any, Any], Any]) -> NDArray[Any]:
        """Apply a function block by block, ((b, d), (b, M, d)) float32 tensors -> (b, ...), to ascending rows (None:
        all).

        All blocks have the same size: a product of another shape might add in another order and break ties.
        """
        dim, found = bank.card.dim, []
        for piece, chosen in self.memory.pieces(bank, VECTORS, rows):
            parts = []
            for start in range(0, len(piece), MAPPED):
                part = piece[start : start + MAPPED]
                length = len(part)
                arrays = [torch.zeros((MAPPED, *array.shape[1:]), device=self.device) for array in part.tensors]
                for array, source in zip(arrays, part.tensors, strict=True):
                    array[:length] = source
                parts.append(function(*(array[..., :dim].contiguous() for array in arrays))[:length])
            one = torch.cat(parts)
            found.append((one if chosen is None else one[chosen]).cpu().numpy())
        return np.concatenate(found)

    def _sweeps(self, groups: Sequence[tuple[list[int], PackedQueries]], rows: DeviceRows, count: int) -> Any:
        from tapr.search.kernels import gpu_kernels

        bank = rows.local_vectors, rows.scales, rows.global_vectors
        if len(groups) == 1:
            return gpu_kernels.score_rows(*bank, groups[0][1])
        scores = torch.empty((count, len(rows)), device=self.device)
        for group, packed in groups:
            scores[torch.tensor(group, device=self.device)] = gpu_kernels.score_rows(*bank, packed)
        return scores


class TorchKernel(DeviceKernel):
    """The exact arithmetic of exact.py, one query at a time. Any device, no Triton."""

    def __init__(self, device: str = "cpu", memory: int | None = None) -> None:
        super().__init__(device, memory)
        self.name = f"torch-{self.device.type}"

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return exact_query(query, level).lost

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows, level: Level) -> Any:
        scores = torch.zeros((len(queries), len(rows)), device=self.device)
        dim = rows.global_vectors.shape[1]
        prepared = [self._prepared(query, level, dim) for query in queries]
        for start in range(0, len(rows), PICTURES_AT_ONCE):
            part = rows[start : start + PICTURES_AT_ONCE]
            global_vectors, local_vectors = part.global_vectors.double(), part.local_vectors.double()
            for q, (query, target, probes, weights) in enumerate(prepared):
                means = None
                if len(weights):
                    dots = products(local_vectors, probes)  # (B, M, n)
                    if part.scales is not None:
                        dots *= part.scales[..., None]
                    means = soft_means(dots.float(), query.sharpness, torch)
                scores[q, start : start + len(part)] = total(products(global_vectors, target), means, weights)
        return scores

    def _prepared(self, query: CompiledQuery, level: Level, dim: int) -> tuple[ExactQuery, Any, Any, Any]:
        """The query; and on the device its target (d,), probes (d, n) and weights, with d padded with zeros."""
        exact = exact_query(query, level)
        padding = (0, dim - query.dim)
        arrays = (np.pad(exact.target, padding), np.pad(exact.probes, (padding, (0, 0))), exact.weights)
        target, probes, weights = (torch.from_numpy(array).to(self.device) for array in arrays)
        return exact, target, probes, weights
