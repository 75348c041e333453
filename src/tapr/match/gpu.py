"""Scoring on a device: the fused Triton kernels, and the same in plain torch.

`GpuKernel` needs torch with CUDA and Triton; `TorchKernel` needs torch alone and runs anywhere torch does.

A row's score has the same bits in any company of rows. `TorchKernel` trusts no sum of torch's (exact.py): it has them
in any company of queries, by any number of threads and on any device. `GpuKernel` cuts its tiles by how many probes
travel together, and a sum's order follows the tiles: the score of a query alone and in company may differ in the last
bits, by less than `bounds.radius` allows for. An exact search is not touched: what it reads again, it reads for each
query alone, and so it returns what a search of the fp16 vectors for that query alone does, bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.errors import BadInput
from tapr.match.base import CODES, VECTORS, Bank, Level, Rows, finest
from tapr.match.exact import ExactQuery, exact_query, products, soft_means, total
from tapr.match.gpu_bank import DeviceMemory, DeviceRows
from tapr.match.gpu_pack import groups_of, pack, probes_of
from tapr.match.parts import distinct
from tapr.score.compile import CompiledQuery

SCORES_BYTES = 256 << 20  # of scores on the device at once
PICTURES_AT_ONCE = 256  # of TorchKernel


class DeviceKernel(ABC):
    """A kernel that keeps the banks it searches on its device, and ranks there."""

    name: str

    def __init__(self, device: str, memory: int | None = None) -> None:
        """`memory`: bytes that banks may take on the device; by default most of what is free there."""
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise BadInput("torch sees no CUDA device: use the CPU kernel, or install torch for your GPU's driver")
        self.memory = DeviceMemory(self.device, memory)

    def levels(self, bank: Bank) -> tuple[Level, ...]:
        """Codes go first only where the vectors do not fit the device: reading again costs more than they save."""
        if bank.precision != "both":
            return (finest(bank),)
        return (CODES, VECTORS) if self.memory.resident(bank, VECTORS) is None else (VECTORS,)

    @abstractmethod
    def lost(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]: ...

    @abstractmethod
    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows) -> Any:
        """-> (Q, B) float32 tensor on the device"""

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        count = bank.row_count if rows is None else len(rows)
        found = [scores.cpu().numpy() for scores in self._scores(queries, bank, level, rows)]
        return np.concatenate(found) if found else np.zeros((0, count), np.float32)

    def best(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, k: int) -> tuple[Rows, Float32]:
        """Gallery positions and scores of the k best, both (Q, k); equal scores by lower position."""
        rows, places = distinct(bank.rows, bank.row_count)
        order = None if places is None else torch.from_numpy(places).to(self.device)
        found = [
            largest(scores if order is None else scores[:, order], k)
            for scores in self._scores(queries, bank, level, rows)
        ]
        if not found:
            return np.zeros((0, 0), np.int64), np.zeros((0, 0), np.float32)
        positions, scores = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        return positions, scores

    def _scores(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None) -> Iterator[Any]:
        """(some of Q, R) on the device, for some of the queries after the other: as many as SCORES_BYTES hold."""
        count = bank.row_count if rows is None else len(rows)
        step = max(1, SCORES_BYTES // max(1, 4 * count))
        for start in range(0, len(queries), step):
            group = queries[start : start + step]
            scores, done = torch.empty((len(group), count), device=self.device), 0
            for piece, chosen in self.memory.pieces(bank, level, rows) if count else ():
                part = self.score_rows(group, piece)
                part = part if chosen is None else part[:, chosen]
                if part.shape == scores.shape:
                    scores = part
                else:
                    scores[:, done : done + part.shape[1]] = part
                done += part.shape[1]
            yield scores


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

    def lost(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return probes_of(query, level).lost

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows) -> Any:
        from tapr.match import gpu_kernels

        _, locals_, dim = rows.local_vectors.shape
        if locals_ > gpu_kernels.MAX_LOCALS:
            raise BadInput(
                f"the fused GPU kernel reads at most {gpu_kernels.MAX_LOCALS} local vectors a picture, "
                f"this bank has {locals_}: choose the torch kernel"
            )
        if not len(queries) or not len(rows):
            return torch.zeros((len(queries), len(rows)), device=self.device)
        probes = [probes_of(query, rows.level) for query in queries]
        groups = list(groups_of(probes))
        scores = torch.empty((len(queries) if len(groups) > 1 else 0, len(rows)), device=self.device)
        for group in groups:
            packed = pack([probes[q] for q in group], dim, self.device)
            found = gpu_kernels.score_rows(rows.local_vectors, rows.scales, rows.global_vectors, packed)
            if len(groups) == 1:
                return found
            scores[torch.tensor(group, device=self.device)] = found
        return scores


class TorchKernel(DeviceKernel):
    """The same mathematics in the arithmetic of exact.py, one query at a time; any device, no Triton."""

    def __init__(self, device: str = "cpu", memory: int | None = None) -> None:
        super().__init__(device, memory)
        self.name = f"torch-{self.device.type}"

    def lost(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return exact_query(query, level).lost

    def score_rows(self, queries: Sequence[CompiledQuery], rows: DeviceRows) -> Any:
        scores = torch.zeros((len(queries), len(rows)), device=self.device)
        dim = rows.global_vectors.shape[1]
        prepared = [self._prepared(query, rows.level, dim) for query in queries]
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
        """The query, and on the device its target (d,), its probes (d, n) and their weights; d padded with zeros."""
        exact = exact_query(query, level)
        padding = (0, dim - query.dim)
        arrays = (np.pad(exact.target, padding), np.pad(exact.probes, (padding, (0, 0))), exact.weights)
        target, probes, weights = (torch.from_numpy(array).to(self.device) for array in arrays)
        return exact, target, probes, weights


def largest(scores: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row, equal scores by lower position: (Q, N) -> positions, scores, both (Q, k).

    torch.topk leaves the order of equal scores open, so it is given numbers of which no two are equal: the score's
    bits, made to sort like the score, above the position counted from the end.
    """
    count = scores.shape[1]
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # + 0.0: minus zero is zero
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    from_end = torch.arange(count - 1, -1, -1, device=scores.device)
    keys = torch.topk((ordered << 32) + from_end, min(k, count), dim=1).values
    positions = count - 1 - (keys & 0xFFFFFFFF)
    return positions, scores.gather(1, positions)
