"""The compiled kernel: native/*.cpp behind the Kernel protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.errors import BadInput
from tapr.gallery.block import Block
from tapr.match import _kernel
from tapr.match.threads import thread_count
from tapr.query import CompiledQuery


def isas() -> list[str]:
    """Instruction sets that run here, the fastest first: amx, avx512vnni, avx512, avx2, portable."""
    names: list[str] = _kernel.isas()
    return names


def isa() -> str:
    """The one in use unless another is asked for."""
    return isas()[0]


class CpuKernel:
    """Fused dot products, softmax and weighted sum, on every processor; a score has the same bits in any company."""

    def __init__(self, isa_name: str | None = None, threads: int | None = None) -> None:
        self.isa = isa_name or isa()
        if self.isa not in isas():
            raise BadInput(f"the instruction set {self.isa!r} does not run here: choose one of {', '.join(isas())}")
        self.threads = threads or thread_count()

    @property
    def name(self) -> str:
        return f"cpu-{self.isa}"

    def score(self, queries: Sequence[CompiledQuery], block: Block) -> Float32:
        """-> (Q, B)"""
        scores = np.empty((len(queries), len(block)), np.float32)
        if not scores.size:
            return scores
        stored: NDArray[Any] | None = block.local_vectors
        scales: Float32 | None = None
        if stored is None:
            stored, scales = block.local_codes, block.local_scales
        assert stored is not None
        kept = [np.flatnonzero(query.weights) for query in queries]  # a probe of weight 0 costs nothing
        counts = [len(rows) for rows in kept]
        _kernel.score(
            self.isa,
            self.threads,
            _plain(block.global_vectors, np.float16),
            _plain(stored, np.float16 if scales is None else np.int8),
            None if scales is None else _plain(scales, np.float32),
            stored.shape[1],
            _plain(np.stack([query.target for query in queries]), np.float32),
            np.array([query.target_weight for query in queries], np.float32),
            _plain(np.concatenate([q.probes[rows] for q, rows in zip(queries, kept, strict=True)]), np.float32),
            _plain(np.concatenate([q.weights[rows] for q, rows in zip(queries, kept, strict=True)]), np.float32),
            np.repeat(np.array([math.log2(math.e) / query.tau for query in queries], np.float32), counts),
            np.repeat(np.arange(len(queries), dtype=np.int32), counts),
            scores,
        )
        return scores


def _plain(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """As the kernel reads it: in C order. A mapped run of rows already is, and is not copied."""
    return np.ascontiguousarray(array, dtype=dtype)
