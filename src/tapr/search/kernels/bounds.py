"""Bounds how far a score from a cheaper reading of a bank can be from the exact one. The proof is in
docs/matching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import FIXED_STEP, Bank, Level, Rows
from tapr.store.codec import LONGEST
from tapr.types import Float32
from tapr.utils.weak_cache import cached_for, weakly_cached

ULP = 2.0**-24
_BFLOAT = 2.0**-8  # a number rounded to bfloat16 loses at most this part of itself
MAX_FIXED = 2**14  # largest dimension for fixed-point readings: beyond it they lose more than bfloat16
_SPLIT = 2.0**-15  # what a reading as sums of two bfloat16 omits from a dot product


class Rounding(Protocol):
    """The part of a kernel that bounds need."""

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """As Kernel.rounding_loss."""


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
    """Bounds the difference of a query's scores at two levels, as a function of a picture's code errors."""

    steepness: float
    vectors: float  # weight of a local vector's code error
    coarse: float  # loss of every vector in a coarse reading
    lost: float  # loss of the probes
    sums: float
    rounding: float

    def of(self, errors: Any, library: Any) -> Any:
        """The largest code error of each picture's local vectors, float32 (...,) -> the bound, float32, rounded up.

        `library`: numpy or torch, the library of the array.
        """
        wide = errors.astype(np.float64) if library is np else errors.double()
        dots = self.vectors * wide + self.coarse + self.lost * (LONGEST + wide.clip(_BFLOAT * LONGEST)) + self.sums
        bound = self.steepness * dots + self.rounding
        if library is np:
            return np.nextafter(bound.astype(np.float32), np.float32(np.inf))
        narrow = bound.float()
        return library.nextafter(narrow, library.full_like(narrow, math.inf))


@weakly_cached
def error_bound(query: CompiledQuery, kernel: Rounding, level: Level, last: Level | None, count: int) -> ErrorBound:
    """A bound of |score at this level - score at the last level|. `count` is M, the number of local vectors.

    Without a last level: of the distance to the score that the definition gives for the fp16 vectors.
    """
    lost = kernel.rounding_loss(query, level) + (0.0 if last is None else kernel.rounding_loss(query, last))
    return replace(
        error_bound_without_probes(query, level, last, count),
        lost=float(np.abs(query.weights.astype(np.float64)) @ lost),
    )


def error_bound_without_probes(query: CompiledQuery, level: Level, last: Level | None, count: int) -> ErrorBound:
    """The error bound if probes were not rounded."""
    total = float(np.abs(query.weights.astype(np.float64)) @ lengths_of(query))
    # a dot product differs by the loss of the vectors, the loss of the probes, and the rounding of both float32 sums
    return ErrorBound(
        steepness(count),
        total if level.codes and not (last and last.codes) else 0.0,
        total * vector_loss(level, query.dim),
        0.0,
        total * LONGEST * sum_loss(query.dim),
        8 * ULP * ((count + 1 / query.tau + 32) * total + len(query.weights)),
    )


def sum_loss(dim: int) -> float:
    """The difference of two readings' sums of products due to rounding, for unit vectors."""
    return 2 * dim * ULP + _SPLIT


def vector_loss(level: Level, dim: int) -> float:
    """An upper bound of what a coarse reading of fp16 numbers changes in a local vector."""
    if level.codes or not level.coarse:
        return 0.0
    return math.sqrt(dim) * FIXED_STEP / 2 if level.fixed else _BFLOAT * LONGEST


@weakly_cached
def lengths_of(query: CompiledQuery) -> NDArray[np.float64]:
    """(n,): upper bounds of the probes' lengths; float32 computes them to 1e-4."""
    squares = np.matmul(query.probes[:, None], query.probes[:, :, None])[:, 0, 0]
    return np.asarray(np.sqrt(squares.astype(np.float64)) * (1 + 1e-4))


def radius(
    query: CompiledQuery, kernel: Rounding, level: Level, last: Level | None, errors: Float32, count: int
) -> Float32:
    """The error bound of each picture: code errors (B,) -> (B,)."""
    if level == last:
        return np.zeros(len(errors), np.float32)
    return np.asarray(error_bound(query, kernel, level, last, count).of(errors, np), np.float32)


def row_errors(bank: Bank, rows: Rows | None = None) -> Float32:
    """The largest code error of each of these rows' local vectors (None: of all), (R,); (1,) zero without codes."""
    if bank.precision == "fp16":
        return np.zeros(1, np.float32)

    def read() -> Float32:
        worst = np.zeros(bank.row_count, np.float32)
        for block in bank.blocks():
            assert block.local_errors is not None
            worst[block.start : block.start + len(block)] = block.local_errors.max(axis=1)
        return worst

    errors = np.asarray(cached_for(bank.stored, "code errors", read), np.float32)
    return errors if rows is None else errors[rows]
