"""Scores with the same bits in every library, for NumPy and torch arrays.

A library's matrix product may add in any order, depending on shape, threads, processor, or a row's position. So no sum
here is rounded by a library. A bank's numbers are fp16, integer multiples of 2^-24, or integers (codes). The numbers of
a probe are rounded to integer multiples of 2^-26. Their products and all sums of these fit the 53 bits of a float64, so
every order of adding gives the same, exact dot product.
Everything else uses only operations that IEEE 754 defines to the last bit (sum, difference, product, quotient, maximum,
rounding to float32) on whole arrays, and sums in an order that is defined here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Level
from tapr.store.codec import rotate
from tapr.types import Float32
from tapr.utils.weak_cache import weakly_cached

# |u| < 4 and |v| < 2: sums of products stay below 8 = 2^53 2^-24 2^-26. Codes: |v| <= 127 sqrt(d), in steps of 1.
_STEP, BANK_STEP = 2.0**-26, 2.0**-24
_LENGTH = 4
_ROWS = 4096  # global vectors converted to float64 at a time
# Weights and rows of terms: |w| < 4 and up to 64 terms below 1 stay below 32 = 2^53 2^-21 2^-27.
_WEIGHT_STEP, TERM_STEP = 2.0**-21, 2.0**-27
_SHIFT = 12582912.0  # 1.5 * 2^23: adding it rounds a small number to an integer, in the last bits
_SHIFT_BITS = 0x4B400000
# 2^x for |x| <= 1/2, the highest power first; the error is below 7.5e-8 (native/engine.inc has the same)
_POWER = tuple(
    float.fromhex(number)
    for number in (
        "0x1.5c08e6p-10",
        "0x1.3d0c54p-7",
        "0x1.c6b6e4p-5",
        "0x1.ebf918p-3",
        "0x1.62e428p-1",
        "0x1.000002p+0",
    )
)


@dataclass(frozen=True, eq=False)
class ExactQuery:
    """A query rounded to the grid, as a level reads it, without probes of weight 0."""

    target: NDArray[np.float64]  # (d,), weighted
    probes: NDArray[np.float64]  # (d, n)
    weights: NDArray[np.float64]  # (n,)
    sharpness: float  # log2(e) / tau, a float32 number
    lost: NDArray[np.float64]  # rounding loss of all probes, including those of weight 0: see Kernel.rounding_loss


@weakly_cached
def exact_query(query: CompiledQuery, level: Level) -> ExactQuery:
    kept = np.flatnonzero(query.weights)
    probes = rotate(query.probes[kept]) if level.codes else query.probes[kept]
    grid = on_grid(probes)
    lost = np.zeros(len(query.probes))
    lost[kept] = np.linalg.norm(grid - probes, axis=1)
    return ExactQuery(
        on_grid(np.asarray(query.target, np.float64) * query.target_weight),
        np.ascontiguousarray(grid.T),
        np.asarray(query.weights[kept], np.float64),
        float(np.float32(math.log2(math.e) / query.tau)),
        lost,
    )


def on_grid(vectors: NDArray[Any], step: float = _STEP) -> NDArray[np.float64]:
    """(..., d): each number rounded to a multiple of the step, or of a coarser one for vectors of length 4 or more."""
    wide = np.asarray(vectors, np.float64)
    _, exponents = np.frexp(np.linalg.norm(wide, axis=-1, keepdims=True) / _LENGTH)  # length / 4 is below 2^exponent
    steps = np.ldexp(step, np.maximum(exponents, 0))
    return np.asarray(np.rint(wide / steps) * steps)


def products(vectors: Any, probes: Any) -> Any:
    """(rows, d) . (d, n) -> (rows, n). The only product computed by a library; it is exact, so any library will do."""
    return vectors @ probes


def similarities(vectors: NDArray[Any], gallery: NDArray[Any]) -> Float32:
    """(Q, d), (N, d) of unit vectors -> (Q, N): dot products. Equal rows have equal results wherever they are."""
    probes = on_grid(vectors).T
    found = np.empty((len(vectors), len(gallery)), np.float32)
    for start in range(0, len(gallery), _ROWS):
        # fp16 numbers are on the grid already
        rows = np.rint(gallery[start : start + _ROWS] / BANK_STEP) * np.float64(BANK_STEP)
        found[:, start : start + _ROWS] = products(rows, probes).T
    return found


def weighted_sums(weights: NDArray[Any], terms: NDArray[Any]) -> NDArray[np.float64]:
    """(V, T), (T, N), at most 64 terms of at most 1 -> (V, N). Equal columns have equal sums wherever they are."""
    rounded = np.rint(np.asarray(terms, np.float64) / TERM_STEP) * TERM_STEP
    return np.asarray(products(weights_on_grid(weights), rounded))


def weights_on_grid(weights: NDArray[Any]) -> NDArray[np.float64]:
    return on_grid(weights, _WEIGHT_STEP)


def soft_means(dots: Any, sharpness: float, library: Any) -> Any:
    """float32 (b, M, n), overwritten -> (b, n): the mean over M, weighted by the softmax of dots / tau.

    `library`: numpy or torch, the library of the arrays.
    """
    top = library.amax(dots, 1)
    dots -= top[:, None]
    powers = _power_of_two(dots * sharpness, library)
    dots *= powers
    return top + _sum(dots) / _sum(powers)


def total(target: Any, means: Any, weights: Any) -> Any:
    """float64 (b,), float32 (b, n), float64 (n,) -> float64 (b,): the score before rounding to float32."""
    return target + _sum(means * weights) if len(weights) else target


def _power_of_two(t: Any, library: Any) -> Any:
    """2^t for t <= 0 in float32: the integer part becomes the exponent, a polynomial gives the rest."""
    t = t.clip(-126.0, 0.0)
    shifted = t + _SHIFT
    t -= shifted - _SHIFT  # the distance to the nearest integer
    value = t * _POWER[0]
    for coefficient in _POWER[1:-1]:
        value += coefficient
        value *= t
    value += _POWER[-1]
    whole = shifted.view(library.int32)
    whole -= _SHIFT_BITS - 127  # the bits of 2^k are (k + 127) 2^23
    whole <<= 23
    value *= whole.view(library.float32)
    return value


def _sum(terms: Any) -> Any:
    """(b, n, ...), overwritten -> (b, ...): adds halves pairwise, in an order that depends only on n."""
    while terms.shape[1] > 1:
        half = (terms.shape[1] + 1) // 2
        terms[:, : terms.shape[1] - half] += terms[:, half:]
        terms = terms[:, :half]
    return terms[:, 0]
