"""How far a score from a cheaper reading of a bank can be from the exact one. docs/matching.md has the proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import FIXED_STEP, Kernel, Level
from tapr.store.codec import LONGEST
from tapr.types import Float32
from tapr.utils.weak_cache import weakly_cached

ULP = 2.0**-24
_BFLOAT = 2.0**-8  # a number rounded to bfloat16 loses at most this part of itself
MAX_FIXED = 2**14  # numbers of a vector: with more of them, whole multiples could lose more than bfloat16
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


@dataclass(frozen=True)
class ErrorBound:
    """How far a query's score at one level can be from its score at another, as a function of a picture's errors."""

    steepness: float
    vectors: float  # how much a local vector's own error counts
    coarse: float  # what every vector loses to a coarse reading
    lost: float  # of the probes
    sums: float
    rounding: float

    def of(self, errors: Any, library: Any) -> Any:
        """float32 (...,), the most that a local vector of each picture loses as a code -> float32, rounded up.

        `library`: numpy or torch, whose array it is.
        """
        wide = errors.astype(np.float64) if library is np else errors.double()
        dots = self.vectors * wide + self.coarse + self.lost * (LONGEST + wide.clip(_BFLOAT * LONGEST)) + self.sums
        bound = self.steepness * dots + self.rounding
        if library is np:
            return np.nextafter(bound.astype(np.float32), np.float32(np.inf))
        narrow = bound.float()
        return library.nextafter(narrow, library.full_like(narrow, math.inf))


@weakly_cached
def error_bound(query: CompiledQuery, kernel: Kernel, level: Level, last: Level | None, count: int) -> ErrorBound:
    """|score at this level - score at the last level| is at most this. M is `count`.

    Without a last level it is how far the score is from the one that the fp16 vectors have by the definition.
    """
    lost = kernel.rounding_loss(query, level) + (0.0 if last is None else kernel.rounding_loss(query, last))
    return replace(
        error_bound_without_probes(query, level, last, count),
        lost=float(np.abs(query.weights.astype(np.float64)) @ lost),
    )


def error_bound_without_probes(query: CompiledQuery, level: Level, last: Level | None, count: int) -> ErrorBound:
    """The reach, were the probes read as they are."""
    total = float(np.abs(query.weights.astype(np.float64)) @ lengths_of(query))
    # a dot product differs by what the vectors lose, by what the probes lose, and by both levels' float32 sums
    return ErrorBound(
        steepness(count),
        total if level.codes and not (last and last.codes) else 0.0,
        total * vector_loss(level, query.dim),
        0.0,
        total * LONGEST * sum_loss(query.dim),
        8 * ULP * ((count + 1 / query.tau + 32) * total + len(query.weights)),
    )


def sum_loss(dim: int) -> float:
    """How much two readings' sums of products differ by rounding, for vectors of length 1."""
    return 2 * dim * ULP + _SPLIT


def vector_loss(level: Level, dim: int) -> float:
    """How much of a local vector's length a coarse reading of its fp16 numbers loses, at most."""
    if level.codes or not level.coarse:
        return 0.0
    return math.sqrt(dim) * FIXED_STEP / 2 if level.fixed else _BFLOAT * LONGEST


@weakly_cached
def lengths_of(query: CompiledQuery) -> NDArray[np.float64]:
    """(n,) of the probes, at least: float32 finds them to 1e-4."""
    squares = np.matmul(query.probes[:, None], query.probes[:, :, None])[:, 0, 0]
    return np.asarray(np.sqrt(squares.astype(np.float64)) * (1 + 1e-4))


def radius(
    query: CompiledQuery, kernel: Kernel, level: Level, last: Level | None, errors: Float32, count: int
) -> Float32:
    """The reach, of each picture: (B,) -> (B,)"""
    if level == last:
        return np.zeros(len(errors), np.float32)
    return np.asarray(error_bound(query, kernel, level, last, count).of(errors, np), np.float32)
