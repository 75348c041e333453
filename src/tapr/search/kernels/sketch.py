"""The many probes of a reference picture, by the few directions that they have in common.

The local vectors of one picture are much alike. So its probes are u_i = A_i B + r_i: the R rows of B are orthonormal,
and the rests r_i are short and at right angles to all of them. For a local vector v of length at most L

    u_i . v  <=  A_i (B v) + |r_i| sqrt(L^2 - |B v|^2)                 (Cauchy-Schwarz, beside the directions)

and l_tau(u_i; V), a mean of the u_i . v_j, is at most the largest of these. R products per vector instead of one per
probe bound a score from above; nothing is stored for it. docs/matching.md has the proof and what it rules out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from tapr.score.compile import CompiledQuery
from tapr.score.definition import products
from tapr.search.kernels.base import COARSE_CODES, SHORT_CODES, Bank, Kernel, Level, Rows
from tapr.search.kernels.bounds import ULP, ErrorBound, error_bound_without_probes, sum_loss, vector_loss
from tapr.store.codec import LONGEST
from tapr.types import Float32, Float64
from tapr.utils.weak_cache import weakly_cached

_FEWEST = 3  # directions: each further one costs more than it rules out
_LANES = 8  # but a query alone fills the registers of most processors, at no cost
_TURNS = 6  # of the search for the main directions: the bound holds for any
_MORE = (0, 4, 8)  # directions, where the rests are too long
_ALIKE = 8  # probes of a term, at least: a picture's, not a phrase's
_WORTH = 3  # a sketch has so many times fewer products, at least
_LOOSE = 0.3  # of the weighted probes: with longer rests little is ruled out
_FEW_PROBES = 16  # a query without a sketch may take part if it has no more


@dataclass(frozen=True, eq=False)
class Sketch:
    """A query that is bounded from above. Without directions, the bound is the score itself."""

    words: CompiledQuery  # the target, and the probes that are read as they are
    alike: CompiledQuery  # the others; all weights are positive
    directions: Float32  # (R, d)
    coefficients: Float32  # (n, R)
    rests: Float32  # (n,) lengths, at least
    skewness: float  # how far the directions are from orthonormal, at most
    aside: float  # what the rests leave along the directions, weighted: rounding

    @property
    def reading(self) -> CompiledQuery:
        """What a kernel multiplies: the words' probes, then the directions, weighted as their errors count."""
        return _reading(self)

    @property
    def weight(self) -> float:
        """All directions and rests: what an error of every product counts, at most."""
        lengths = np.abs(self.coefficients.astype(np.float64)).sum(axis=1) + self.rests
        return float(self.alike.weights.astype(np.float64) @ lengths) * (1 + 1e-6)

    def longest(self, kernel: Kernel, level: Level, errors: Float32) -> float:
        """L^2 of vectors as this level reads them, with what the products |B v|^2 may be too large by."""
        length = LONGEST + (float(errors.max(initial=0)) if level.codes else vector_loss(level, self.words.dim))
        lost = (
            kernel.rounding_loss(self.reading, level)[len(self.words.weights) :] * length
            + sum_loss(self.words.dim) * length
        )
        off = float(np.linalg.norm(lost))
        most = 1.01 * length + off  # of |B v|, as the kernel finds it
        return length**2 + (self.skewness + 1e-5) * most**2 + 2 * off * most

    def slack(self, kernel: Kernel, level: Level, last: Level, errors: Float32, count: int) -> Float32:
        """(B,) how far the last level's score can be above this level's bound. M is `count`."""
        now, then = kernel.rounding_loss(self.reading, level), kernel.rounding_loss(self.alike, last)
        known = len(self.words.weights)
        weights = self.reading.weights.astype(np.float64)
        total = self.weight
        # a maximum moves no faster than what it is taken of; the last level's mean is not above its own maximum
        alike = ErrorBound(
            steepness=1.0,
            vectors=total if level.codes and not last.codes else 0.0,
            coarse=total * vector_loss(level, self.words.dim),
            lost=float(weights[known:] @ now[known:] + self.alike.weights.astype(np.float64) @ then),
            sums=total * sum_loss(self.words.dim) * LONGEST,
            rounding=8 * ULP * ((count + 64) * total + len(self.alike.weights)) + self.aside,
        ).of(errors, np)
        if level == last:  # the words' products are the same numbers
            return np.asarray(alike, np.float32)
        lost = np.abs(weights[:known]) @ (now[:known] + kernel.rounding_loss(self.words, last))
        words = replace(error_bound_without_probes(self.words, level, last, count), lost=float(lost)).of(errors, np)
        return np.asarray(np.nextafter(alike + words, np.float32(np.inf)))


@runtime_checkable
class SketchingKernel(Kernel, Protocol):
    """A kernel that bounds scores by sketches."""

    def highest(
        self, sketches: Sequence[Sketch], limits: Sequence[float], bank: Bank, level: Level, rows: Rows | None
    ) -> Float32:
        """-> (Q, R): the most that each row's score can be, but for `Sketch.slack`; `limits` as of `Sketch.longest`."""


def sketches_of(queries: Sequence[CompiledQuery]) -> list[Sketch] | None:
    """One per query, where at least one has directions and none has many probes without them."""
    found = [sketch_of(query, alone=len(queries) == 1) for query in queries]
    if any(len(one.directions) for one in found) and all(len(one.words.weights) <= _FEW_PROBES for one in found):
        return found
    return None


def level_of(levels: Sequence[Level]) -> Level:
    """Where a sketch is read: as cheaply as can be. A probe loses less to its leading byte than the rests are long."""
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
    """Gram and Schmidt's, (R, n) -> (at most R, n); what is hardly there is left out.

    LAPACK would leave threads behind that keep a processor busy for tens of milliseconds.
    """
    found: list[Float64] = []
    largest = math.sqrt(float((rows**2).sum(axis=1).max(initial=0)))
    for row in rows:
        left = row
        for other in [*found, *found]:  # once leaves what rounding has put back
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
