"""The NumPy kernel: matrix products on blocks that fit the cache, with the softmax computed right after.

It uses the arithmetic of exact.py: a score has the same bits wherever its picture is and whatever is scored with it.
Exact re-scoring (search/prune.py) relies on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import CODES, VECTORS, Bank, BoundingKernel, Level, Rows
from tapr.search.kernels.exact import exact_query, products, soft_means, total
from tapr.search.kernels.host import HostKernel
from tapr.search.kernels.row_blocks import pieces_of
from tapr.search.prefilter.candidates import products_by_numpy
from tapr.search.prefilter.limit import Limit, limits_by_numpy
from tapr.store.block import Block
from tapr.types import Float32
from tapr.utils.threads import thread_count

Float64 = NDArray[np.float64]

_PIECE_BYTES = 2 << 20  # bytes of float64 vectors per block: about the size of a level 2 cache
# OpenBLAS does not split products below this size among threads, which would wait for each other. Blocks are
# distributed among threads here instead.
_PRODUCT_SIZE = 1 << 18


class NumpyKernel(HostKernel):
    """Only needs NumPy. Works with any d, M and number of probes."""

    name = "numpy"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or thread_count()

    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        return {"fp16": (VECTORS,), "int8": (CODES,), "both": (CODES, VECTORS)}[bank.precision]

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return exact_query(query, level).lost

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        scores = np.empty((len(queries), bank.row_count if rows is None else len(rows)), np.float32)
        if not scores.size:
            return scores
        count, dim = bank.card.locals_count, bank.card.dim
        plans = [_Plan(query, level, max(1, _PRODUCT_SIZE // (count * dim))) for query in queries]
        step = max(1, _PIECE_BYTES // (8 * count * dim))

        def work(piece: Block) -> Float32:
            local_vectors = piece.local_codes if level.codes else piece.local_vectors
            assert local_vectors is not None
            wide = local_vectors.astype(np.float64)  # (b, M, d)
            global_vectors = piece.global_vectors.astype(np.float64)  # (b, d)
            return np.stack([plan.score(global_vectors, wide, piece.local_scales) for plan in plans])

        done = 0
        with ThreadPoolExecutor(self.threads) as pool:
            for part in pool.map(work, pieces_of(bank, rows, step)):
                scores[:, done : done + part.shape[1]] = part
                done += part.shape[1]
        return scores

    @property
    def bounder(self) -> BoundingKernel:
        return self

    def limits(
        self, limits: Sequence[Limit], bank: Bank, rows: Rows | None, targets: Float32, floors: Float64 | None
    ) -> Float32:
        return limits_by_numpy(limits, bank, rows, targets, floors)

    def pooled(self, wanted: NDArray[np.int16], bank: Bank, rows: Rows | None) -> Float32:
        return products_by_numpy(wanted, bank, rows)


class _Plan:
    """A query, with its probes in groups of `width` per product."""

    def __init__(self, query: CompiledQuery, level: Level, width: int) -> None:
        self._query, self._codes = exact_query(query, level), level.codes
        starts = range(0, len(self._query.weights), width)
        self._groups = [
            np.ascontiguousarray(self._query.probes[:, start : start + width]) for start in starts
        ]  # (d, n)

    def score(self, global_vectors: Float64, local_vectors: Float64, scales: Float32 | None) -> Float32:
        """(b, d), (b, M, d), (b, M) of codes -> (b,)"""
        means = [self._means(local_vectors, scales, group) for group in self._groups]
        target = products(global_vectors, self._query.target)
        found = total(target, np.concatenate(means, axis=1) if means else None, self._query.weights)
        return np.asarray(found, np.float32)

    def _means(self, local_vectors: Float64, scales: Float32 | None, probes: Float64) -> Float32:
        dots = products(local_vectors, probes)  # (b, M, n)
        if self._codes:
            assert scales is not None
            dots *= scales[..., None]
        return np.asarray(soft_means(dots.astype(np.float32), self._query.sharpness, np))
