"""Finds candidates by one vector per picture: [global vector, mean of local vectors], as bytes (store/summary.py).

A query is [target, weighted sum of its probes]. The product of both is about the score that the picture would have if
all its local vectors were equal. No proof rests on it: bad candidates cost reads, never a wrong answer. The half of the
target is a part of every bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Rows
from tapr.search.kernels.bounds import ULP
from tapr.search.kernels.row_blocks import pieces_of
from tapr.store.codec import rotate
from tapr.store.summary import pooled_step
from tapr.types import Float32

_CHUNK = 4096  # pictures per batch of the NumPy kernel


@dataclass(frozen=True, eq=False)
class PooledQuery:
    numbers: NDArray[np.int16]  # (2, d): so small that no sum of products with bytes leaves 32 bits
    step: float  # what a product of 1 stands for
    lost: (
        float  # how far the target's term can be above what its product says, apart from what the picture's bytes lose
    )

    @classmethod
    def of(cls, query: CompiledQuery) -> PooledQuery:
        local = query.weights.astype(np.float64) @ query.probes
        both = rotate(np.stack([query.target.astype(np.float64) * query.target_weight, local]))
        sizes = np.abs(both)
        step = max(sizes.max() / 32767, sizes.sum(axis=1).max() * 127 * 1.01 / 2**31) or 1.0
        numbers = np.rint(both / step)
        unit = step * pooled_step(query.dim)
        # bytes are at most 127 steps: what rounding took from the numbers, what float32 takes from the product
        rounded = np.abs(both[0] - numbers[0] * step).sum() * 127 * pooled_step(query.dim)
        most = np.abs(numbers[0]).sum() * 127 * unit * 4 * ULP
        return cls(numbers.astype(np.int16), unit, float(rounded + most) * (1 + 1e-9))


@dataclass(frozen=True, eq=False)
class Resemblance:
    promise: Float32  # (Q, R): the higher, the more promising
    targets: Float32  # (Q, R): at least the target's terms of the scores, apart from what the pictures' bytes lose


def resemblance(queries: Sequence[CompiledQuery], bank: Bank, rows: Rows | None, kernel: Kernel) -> Resemblance:
    pooled = [PooledQuery.of(query) for query in queries]
    wanted = np.stack([one.numbers for one in pooled])
    products = kernel.bounder.pooled(wanted, bank, rows)
    products *= np.array([one.step for one in pooled], np.float32)[:, None, None]
    targets, locals_ = products[:, 0], products[:, 1]
    locals_ += targets
    targets += np.nextafter(np.array([one.lost for one in pooled], np.float32), np.float32(np.inf))[:, None]
    return Resemblance(locals_, targets)


def products_by_numpy(wanted: NDArray[np.int16], bank: Bank, rows: Rows | None) -> Float32:
    """(Q, 2, d) -> (Q, 2, R): the products of both halves."""
    parts = [np.zeros((*wanted.shape[:2], 0), np.float32)]
    for block in pieces_of(bank, rows, _CHUNK):
        assert block.pooled is not None
        halves = block.pooled.reshape(len(block), 2, -1).astype(np.float64)
        parts.append(np.einsum("qhd,nhd->qhn", wanted.astype(np.float64), halves, optimize=True).astype(np.float32))
    return np.concatenate(parts, axis=2)
