"""The NumPy kernel: matrix products on pieces that fit the cache, the softmax while they are still there.

Each picture is its own matrix product of one fixed shape, so its score has the same bits wherever it stands and
whatever it is scored with. Exact re-scoring (topk.py) relies on that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.encoders.base import Float32
from tapr.gallery.block import Block
from tapr.query import CompiledQuery

_PIECE_BYTES = 2 << 20  # of decoded float32 vectors: about one core's level 2 cache


class NumpyKernel:
    """Needs nothing but NumPy; any d, any M, any number of probes."""

    name = "numpy"

    def score(self, queries: Sequence[CompiledQuery], block: Block) -> Float32:
        """-> (Q, B)"""
        scores = np.empty((len(queries), len(block)), np.float32)
        stored = block.local_vectors if block.local_vectors is not None else block.local_codes
        assert stored is not None
        _, count, dim = stored.shape  # (B, M, d)
        step = max(1, _PIECE_BYTES // (4 * count * dim))
        active = [query.weights != 0 for query in queries]
        probes = [np.ascontiguousarray(query.probes[kept].T) for query, kept in zip(queries, active, strict=True)]
        weights = [query.weights[kept] for query, kept in zip(queries, active, strict=True)]
        for start in range(0, len(block), step):
            piece = slice(start, start + step)
            global_vectors = block.global_vectors[piece].astype(np.float32)  # (b, d)
            local_vectors = stored[piece].astype(np.float32)  # (b, M, d)
            scales = None
            if block.local_vectors is None:
                assert block.local_scales is not None
                scales = block.local_scales[piece, :, None]  # (b, M, 1)
            for row, query in enumerate(queries):
                # a sum over one picture's products, not a matrix product, whose rounding may depend on its neighbours
                target = (global_vectors * query.target).sum(axis=1)
                scores[row, piece] = np.float32(query.target_weight) * target
                if probes[row].shape[1]:
                    dots = np.matmul(local_vectors, probes[row])  # (b, M, n)
                    if scales is not None:
                        dots *= scales
                    scores[row, piece] += (_soft_mean(dots, query.tau) * weights[row]).sum(axis=1)
        return scores


def _soft_mean(dots: Float32, tau: float) -> Float32:
    """(b, M, n) -> (b, n): the mean over M, weighted by the softmax of dots / tau."""
    powers = dots - dots.max(axis=1, keepdims=True)
    powers *= np.float32(1 / tau)
    np.exp(powers, out=powers)
    total = powers.sum(axis=1)
    powers *= dots
    return np.asarray(powers.sum(axis=1) / total, np.float32)
