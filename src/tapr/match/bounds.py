"""How far a score read from int8 codes can be from the one read from fp16. docs/matching.md has the proof."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tapr.encoders.base import Float32
from tapr.query import CompiledQuery

# What a kernel may lose on one dot product of unit vectors, in the scan and in the re-scoring together: float32 sums,
# and probes rounded to fp16 or to 16 bits. Every kernel stays well inside.
DOT_ERROR = 2.0**-10
_ULP = 2.0**-24


@cache
def steepness(count: int) -> float:
    """The Lipschitz constant of l_tau in its M dot products (largest difference), the same for every tau.

    sqrt(1 + V), V the largest variance of log p under a distribution p over M places; V is reached by one heavy place
    and M - 1 equal light ones: sqrt(V) = max over t of (t + log(M - 1)) / (2 cosh(t / 2)).
    """
    if count == 1:
        return 1.0
    spread = math.log(count - 1)
    low, high = 0.0, 4.0  # the maximum lies where (t + spread) tanh(t / 2) = 2
    for _ in range(60):
        middle = (low + high) / 2
        if (middle + spread) * math.tanh(middle / 2) < 2:
            low = middle
        else:
            high = middle
    deviation = (high + spread) / (2 * math.cosh(high / 2))
    return math.sqrt(1 + deviation**2) * (1 + 1e-9)


def radius(query: CompiledQuery, local_errors: Float32) -> Float32:
    """(B, M) lengths lost to int8 -> (B,): |score from codes - score from fp16| is at most this."""
    count = local_errors.shape[1]
    weights = np.abs(query.weights.astype(np.float64))
    lengths = np.linalg.norm(query.probes.astype(np.float64), axis=1)
    reach = float(weights @ lengths) * steepness(count)
    rounding = 8 * _ULP * (count + 1 / query.tau + 32) * float(weights @ lengths) + 8 * _ULP * len(weights)
    worst = local_errors.max(axis=1).astype(np.float64)
    bound = (reach * (worst + DOT_ERROR) + rounding).astype(np.float32)
    return np.asarray(np.nextafter(bound, np.float32(np.inf)), np.float32)
