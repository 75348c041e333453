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
from tapr.gallery.codec import turn
from tapr.match.base import CODES, VECTORS, Bank, Level, Rows
from tapr.match.parts import pieces_of
from tapr.match.threads import thread_count
from tapr.score.compile import CompiledQuery

_PIECE_BYTES = 2 << 20  # of decoded float32 vectors: about one core's level 2 cache
# Products smaller than this are not split among threads by OpenBLAS, whose threads wait for each other at each one.
# The pieces are shared out among threads here instead.
_PRODUCT_SIZE = 1 << 18


class NumpyKernel:
    """Needs nothing but NumPy; any d, any M, any number of probes."""

    name = "numpy"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or thread_count()

    def levels(self, bank: Bank) -> tuple[Level, ...]:
        return {"fp16": (VECTORS,), "int8": (CODES,), "both": (CODES, VECTORS)}[bank.precision]

    def lost(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return np.zeros(len(query.probes))

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        scores = np.empty((len(queries), bank.row_count if rows is None else len(rows)), np.float32)
        if not scores.size:
            return scores
        count, dim = bank.card.locals_count, bank.card.dim
        plans = [_Plan(query, level, max(1, _PRODUCT_SIZE // (count * dim))) for query in queries]
        step = max(1, _PIECE_BYTES // (4 * count * dim))

        def work(piece: Block) -> Float32:
            global_vectors = piece.global_vectors.astype(np.float32)  # (b, d)
            if level.codes:
                assert piece.local_codes is not None
                assert piece.local_scales is not None
                local_vectors = piece.local_codes.astype(np.float32) * piece.local_scales[..., None]  # (b, M, d)
            else:
                assert piece.local_vectors is not None
                local_vectors = piece.local_vectors.astype(np.float32)
            return np.stack([plan.score(global_vectors, local_vectors) for plan in plans])

        done = 0
        with ThreadPoolExecutor(self.threads) as pool:
            for part in pool.map(work, pieces_of(bank, rows, step)):
                scores[:, done : done + part.shape[1]] = part
                done += part.shape[1]
        return scores


class _Plan:
    """A query's probes, those of weight 0 left out, in groups of `width`."""

    def __init__(self, query: CompiledQuery, level: Level, width: int) -> None:
        kept = np.flatnonzero(query.weights)
        probes = turn(query.probes) if level.codes else query.probes
        self._query = query
        self._groups = [kept[start : start + width] for start in range(0, len(kept), width)]
        self._probes = [np.ascontiguousarray(probes[group].T, np.float32) for group in self._groups]  # (d, n)

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
