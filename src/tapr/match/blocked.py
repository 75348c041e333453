"""The NumPy kernel: matrix products on pieces that fit the cache, the softmax while they are still there.

Each picture is its own matrix product of one fixed shape, so its score has the same bits wherever it stands and
whatever it is scored with. Exact re-scoring (topk.py) relies on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.gallery.block import Block
from tapr.match.threads import thread_count
from tapr.query import CompiledQuery

_PIECE_BYTES = 2 << 20  # of decoded float32 vectors: about one core's level 2 cache
# Products smaller than this are not split among threads by OpenBLAS, whose threads wait for each other at each one.
# The pieces are shared out among threads here instead.
_PRODUCT_SIZE = 1 << 18


class NumpyKernel:
    """Needs nothing but NumPy; any d, any M, any number of probes."""

    name = "numpy"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or thread_count()

    def score(self, queries: Sequence[CompiledQuery], block: Block) -> Float32:
        """-> (Q, B)"""
        scores = np.empty((len(queries), len(block)), np.float32)
        if not scores.size:
            return scores
        stored = block.local_vectors if block.local_vectors is not None else block.local_codes
        assert stored is not None
        _, count, dim = stored.shape  # (B, M, d)
        plans = [_Plan(query, max(1, _PRODUCT_SIZE // (count * dim))) for query in queries]
        step = max(1, _PIECE_BYTES // (4 * count * dim))

        def work(start: int) -> None:
            piece = slice(start, start + step)
            global_vectors = block.global_vectors[piece].astype(np.float32)  # (b, d)
            local_vectors = stored[piece].astype(np.float32)  # (b, M, d)
            if block.local_vectors is None:
                assert block.local_scales is not None
                local_vectors *= block.local_scales[piece, :, None]
            for row, plan in enumerate(plans):
                scores[row, piece] = plan.score(global_vectors, local_vectors)

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(work, range(0, len(block), step)))
        return scores


class _Plan:
    """A query's probes, those of weight 0 left out, in groups of `width`."""

    def __init__(self, query: CompiledQuery, width: int) -> None:
        kept = np.flatnonzero(query.weights)
        self._query = query
        self._groups = [kept[start : start + width] for start in range(0, len(kept), width)]
        self._probes = [np.ascontiguousarray(query.probes[group].T, np.float32) for group in self._groups]  # (d, n)

    def score(self, global_vectors: Float32, local_vectors: Float32) -> Float32:
        """(b, d), (b, M, d) -> (b,)"""
        # a sum over each picture's products, not a matrix product, whose rounding may depend on its neighbours
        total = np.float32(self._query.target_weight) * (global_vectors * self._query.target).sum(axis=1)
        for group, probes in zip(self._groups, self._probes, strict=True):
            means = _soft_mean(np.matmul(local_vectors, probes), self._query.tau)
            total += (means * self._query.weights[group]).sum(axis=1)
        return np.asarray(total, np.float32)


def _soft_mean(dots: Float32, tau: float) -> NDArray[np.float32]:
    """(b, M, n) -> (b, n): the mean over M, weighted by the softmax of dots / tau."""
    powers = dots - dots.max(axis=1, keepdims=True)
    powers *= np.float32(1 / tau)
    np.exp(powers, out=powers)
    total = powers.sum(axis=1)
    powers *= dots
    return np.asarray(powers.sum(axis=1) / total, np.float32)
