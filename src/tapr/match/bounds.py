"""How far a score from a cheaper reading of a bank can be from the exact one. docs/matching.md has the proof."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tapr.encoders.base import Float32
from tapr.gallery.codec import LONGEST
from tapr.match.base import Kernel, Level
from tapr.score.compile import CompiledQuery

_ULP = 2.0**-24
_BFLOAT = 2.0**-8  # a number rounded to bfloat16 loses at most this part of itself
_SPLIT = 2.0**-15  # what the exact reading by sums of two bfloat16 leaves out of a dot product


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


def radius(query: CompiledQuery, kernel: Kernel, level: Level, last: Level, errors: Float32, count: int) -> Float32:
    """Of each picture: |its score at this level - the one at the last level| is at most this. (B,) -> (B,)

    `errors`: the most that a local vector of the picture loses as a code. M is `count`.
    """
    if level == last:
        return np.zeros(len(errors), np.float32)
    weights = np.abs(query.weights.astype(np.float64))
    lengths = np.linalg.norm(query.probes.astype(np.float64), axis=1)
    total = float(weights @ lengths)
    lost = float(weights @ (kernel.lost(query, level) + kernel.lost(query, last)))
    # a dot product differs by what the vectors lose, by what the probes lose, and by both levels' float32 sums
    vectors = np.zeros(len(errors))
    if level.codes and not last.codes:
        vectors += errors
    if level.coarse and not level.codes:
        vectors += _BFLOAT * LONGEST
    sums = total * LONGEST * (2 * query.dim * _ULP + _SPLIT)
    dots = total * vectors + lost * (LONGEST + np.maximum(errors, _BFLOAT * LONGEST)) + sums
    rounding = 8 * _ULP * ((count + 1 / query.tau + 32) * total + len(weights))
    bound = (steepness(count) * dots + rounding).astype(np.float32)
    return np.asarray(np.nextafter(bound, np.float32(np.inf)), np.float32)
