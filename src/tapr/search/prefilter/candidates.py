"""Finds candidates by one vector per picture: [global vector, mean of local vectors], as bytes (store/summary.py).

A query is [target, weighted sum of its probes]. The product of both is about the score that the picture would have if
all its local vectors were equal. No proof rests on it: bad candidates cost reads, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Rows
from tapr.search.kernels.row_blocks import pieces_of
from tapr.search.prefilter.limit import compiled_beside
from tapr.store.codec import rotate
from tapr.types import Float32

_CHUNK = 4096  # pictures per batch of the NumPy kernel


def query_vector(query: CompiledQuery) -> NDArray[np.int16]:
    """(2 d,): whole numbers, so small that no sum of products with bytes leaves 32 bits."""
    local = query.weights.astype(np.float64) @ query.probes
    both = rotate(np.stack([query.target.astype(np.float64) * query.target_weight, local])).reshape(-1)
    sizes = np.abs(both)
    step = max(sizes.max() / 32767, sizes.sum() * 127 * 1.01 / 2**31)
    return np.rint(both / (step or 1)).astype(np.int16)


def resemblance(queries: Sequence[CompiledQuery], bank: Bank, rows: Rows | None, kernel: Kernel) -> Float32:
    """(Q, R): the higher, the more promising. Comparable within a query."""
    wanted = np.stack([query_vector(query) for query in queries])
    compiled = compiled_beside(kernel)
    if compiled is not None:
        from tapr.search.prefilter.compiled import pooled_by

        return pooled_by(compiled, wanted, bank, rows)
    parts = []
    for block in pieces_of(bank, rows, _CHUNK):
        assert block.pooled is not None
        parts.append(wanted.astype(np.float32) @ block.pooled.T)
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(queries), 0), np.float32)
