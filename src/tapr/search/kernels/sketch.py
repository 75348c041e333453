"""Bounds a score from above by describing a reference's many probes with a few common directions (a sketch).

The local vectors of a picture are similar. So its probes are u_i = A_i B + r_i: the R rows of B are orthonormal, and
the remainders r_i are short and orthogonal to all of them. For a local vector v of length at most L

    u_i . v  <=  A_i (B v) + |r_i| sqrt(L^2 - |B v|^2)                 (Cauchy-Schwarz, beside the directions)

l_tau(u_i; V) is a mean of the u_i . v_j, so it is at most the largest of these bounds. This needs R products per vector
instead of one per probe, and nothing is stored for it. The proof and measurements are in docs/matching.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tapr.score.compile import CompiledQuery
from tapr.score.definition import products
from tapr.search.kernels.base import COARSE_CODES, SHORT_CODES, Level
from tapr.search.kernels.bounds import ULP, ErrorBound, Rounding, error_bound_without_probes, sum_loss, vector_loss
from tapr.store.codec import LONGEST
from tapr.types import Float32, Float64
from tapr.utils.weak_cache import weakly_cached

_FEWEST = 3  # directions; more cost more than they save
_LANES = 8  # a single query fills a SIMD register with directions at no extra cost
_TURNS = 6  # power iterations to find the main directions; the bound holds for any directions
_MORE = (0, 4, 8)  # additional directions to try if the remainders are too long
_ALIKE = 8  # a term with at least this many probes is a picture, not a phrase
_WORTH = 3  # a sketch must need at least this many times fewer products
_LOOSE = 0.3  # largest share of remainders in the weighted probes; with longer ones little is ruled out
_FEW_PROBES = 16  # a query without a sketch may join the batch if it has no more probes than this


@dataclass(frozen=True, eq=False)
class Sketch:
    """An upper bound of a query's score. Without directions it is the score itself."""

    words: CompiledQuery  # the target and the probes that are used unchanged
    alike: CompiledQuery  # the probes that are sketched; their weights are positive
    directions: Float32  # (R, d)
    coefficients: Float32  # (n, R)
    rests: Float32  # (n,) upper bounds of the remainders' lengths
    skewness: float  # upper bound of the directions' distance from orthonormality
    aside: float  # weighted length of the remainders along the directions, due to rounding

    @property
    def reading(self) -> CompiledQuery:
        """What a kernel multiplies: the unchanged probes, then the directions, weighted by the effect of their
        errors.
        """
        return _reading(self)

    @property
    def weight(self) -> float:
        """The total effect on the score of an error of 1 in every product."""
        lengths = np.abs(self.coefficients.astype(np.float64)).sum(axis=1) + self.rests
        return float(self.alike.weights.astype(np.float64) @ lengths) * (1 + 1e-6)

    def longest(self, kernel: Rounding, level: Level, errors: Float32) -> float:
        """L^2 for vectors as this level reads them, including the error of |B v|^2."""
        length = LONGEST + (float(errors.max(initial=0)) if level.codes else vector_loss(level, self.words.dim))
        lost = (
            kernel.rounding_loss(self.reading, level)[len(self.words.weights) :] * length
            + sum_loss(self.words.dim) * length
        )
        off = float(np.linalg.norm(lost))
        most = 1.01 * length + off  # upper bound of |B v| as the kernel computes it
        return length**2 + (self.skewness + 1e-5) * most**2 + 2 * off * most

    def slack(self, kernel: Rounding, level: Level, last: Level, errors: Float32, count: int) -> Float32:
        """(B,): how far the last level's score can be above this level's bound. `count` is M."""
        now, then = kernel.rounding_loss(self.reading, level), kernel.rounding_loss(self.alike, last)
        known = len(self.words.weights)
        weights = self.reading.weights.astype(np.float64)
        total = self.weight
        # a maximum changes no faster than its arguments; the last level's mean is not above its own maximum
        alike = ErrorBound(
            steepness=1.0,
            vectors=total if level.codes and not last.codes else 0.0,
            coarse=total * vector_loss(level, self.words.dim),
            lost=float(weights[known:] @ now[known:] + self.alike.weights.astype(np.float64) @ then),
            sums=total * sum_loss(self.words.dim) * LONGEST,
            rounding=8 * ULP * ((count + 64) * total + len(self.alike.weights)) + self.aside,
        ).of(errors, np)
        if level == last:  # the unchanged probes have the same products at both levels
            return np.asarray(alike, np.float32)
        lost = np.abs(weights[:known]) @ (now[:known] + kernel.rounding_loss(self.words, last))
        words = replace(error_bound_without_probes(self.words, level, last, count), lost=float(lost)).of(errors, np)
        return np.asarray(np.nextafter(alike + words, np.float32(np.inf)))


def sketches_of(queries: Sequence[CompiledQuery]) -> list[Sketch] | None:
    """One sketch per query; None unless one has directions and none has many probes without them."""
    found = [sketch_of(query, alone=len(queries) == 1) for query in queries]
    if any(len(one.directions) for one in found) and all(len(one.words.weights) <= _FEW_PROBES for one in found):
        return found
    return None


def level_of(levels: Sequence[Level]) -> Level:
    """The cheapest level. The leading byte of a probe loses less than the remainders' length."""
    return SHORT_CODES if levels[0] == COARSE_CODES else levels[0]


@weakly_cached
def sketch_of(query: CompiledQuery, alone: bool = True) -> Sketch:
    used = query.weights != 0
    many = np.zeros(len(used), bool)
    for term in query.terms:
        if term.reads == "local" and term.stop - term.start >= _ALIKE:
            many[term.start : term.stop] = query.weights[term.start : term.stop] > 0
    words, alike = _only(query, used & ~many), _only(query, many)
    for more in _MORE:
        rank = _FEWEST + more
        rank += -(len(words.weights) + rank) % _LANES if alone else 0
        if len(alike.weights) < _WORTH * rank:
            break
        found = _split(words, alike, rank)
        if len(found.directions) and float(alike.weights @ found.rests) <= _LOOSE * float(alike.weights.sum()):
            return found
    none = np.zeros((0, query.dim), np.float32)
    return Sketch(_only(query, used), _only(query, used & ~used), none, none[:, :0], none[:, 0], 0.0, 0.0)


def _only(query: CompiledQuery, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> CompiledQuery:
    return replace(query, probes=query.probes[chosen], weights=query.weights[chosen], terms=())


def _split(words: CompiledQuery, alike: CompiledQuery, rank: int) -> Sketch:
    probes, weights = alike.probes.astype(np.float64), alike.weights.astype(np.float64)  # (n, d), (n,)
    scaled = np.sqrt(weights)[:, None] * probes
    turns = np.cos(np.arange(1, len(probes) + 1) * np.sqrt(np.arange(2, rank + 2))[:, None])  # (R, n): any will do
    alikeness = products(scaled, scaled)  # (n, n)
    for _ in range(_TURNS):
        turns = _orthonormal(products(turns, alikeness))
    directions = _orthonormal(products(turns, scaled.T)).astype(np.float32)  # (R, d)
    coefficients = products(probes, directions).astype(np.float32)  # (n, R)
    rests = probes - products(coefficients, directions.T)
    lengths = np.sqrt((rests**2).sum(axis=1)) * (1 + 1e-6)
    left = np.sqrt((products(rests, directions) ** 2).sum(axis=1))
    skewness = float(np.linalg.norm(products(directions, directions) - np.eye(len(directions))))
    narrow = np.nextafter(lengths.astype(np.float32), np.float32(np.inf))
    aside = 1.1 * LONGEST * float(weights @ left)
    return Sketch(words, alike, directions, coefficients, narrow, skewness, aside)


def _orthonormal(rows: Float64) -> Float64:
    """Gram-Schmidt: (R, n) -> (at most R, n); tiny vectors are dropped.

    LAPACK is not used, because its threads would spin for tens of milliseconds afterwards.
    """
    found: list[Float64] = []
    largest = math.sqrt(float((rows**2).sum(axis=1).max(initial=0)))
    for row in rows:
        left = row
        for other in [*found, *found]:  # twice, because rounding leaves a rest after one pass
            left = left - (left * other).sum() * other
        length = math.sqrt(float((left**2).sum()))
        if length > 1e-6 * largest:
            found.append(left / length)
    return np.array(found).reshape(len(found), rows.shape[1])


@weakly_cached
def _reading(sketch: Sketch) -> CompiledQuery:
    counts = np.abs(sketch.coefficients).T @ sketch.alike.weights  # (R,)
    return replace(
        sketch.words,
        probes=np.concatenate([sketch.words.probes, sketch.directions]).astype(np.float32),
        weights=np.concatenate([sketch.words.weights, np.nextafter(counts, np.float32(math.inf))]).astype(np.float32),
        terms=(),
    )
