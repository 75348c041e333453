"""Finds the k best pictures. Cheap readings of the bank exclude most pictures, and the most precise one ranks
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.breakdown import Breakdown
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Level, RankingKernel, Shortlist
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.row_blocks import distinct
from tapr.search.kernels.sketch import Sketch, SketchingKernel, level_of, sketches_of
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.sweep import check, score_rows
from tapr.types import Float32
from tapr.utils.weak_cache import cached_for

Positions = NDArray[np.int64]

_WORTH = 16  # a cheaper reading pays if k is less than 1 in this many pictures
_FEW = 512  # up to this many pictures go directly to the last level


@dataclass(frozen=True, eq=False)
class TopK:
    """Best first, equal scores in gallery order. Fewer than k if the bank has fewer pictures."""

    positions: Positions  # (k,) in gallery order
    scores: Float32  # (k,)
    kernel: str
    exact: bool  # exact by fp16 vectors; False if the bank only has int8
    rescored: int | None = None  # pictures scored exactly after a cheaper scan of all
    radii: Float32 | None = None  # (k,) how far each score can be from its fp16 value; None if exact
    remarks: tuple[str, ...] = ()
    breakdown: Breakdown | None = None  # of the first hits, if the remote search sent it
    proof: Proof | None = None  # only with a first stage

    @property
    def notes(self) -> tuple[str, ...]:
        proof = () if self.proof is None else (self.proof.sentence,)
        return (*proof, *(() if self.radii is None else (_caution(self.radii),)), *self.remarks)

    def first(self, k: int) -> TopK:
        """The k best of a longer list."""
        radii = None if self.radii is None else self.radii[:k]
        breakdown = None if self.breakdown is None else self.breakdown.take(range(min(k, len(self.breakdown))))
        return replace(self, positions=self.positions[:k], scores=self.scores[:k], radii=radii, breakdown=breakdown)


@runtime_checkable
class RemoteBank(Protocol):
    """A bank that is searched on other machines, by the same kernels and with the same answers."""

    def top_k_many(
        self,
        queries: Sequence[CompiledQuery],
        k: int,
        prefilter: Budget | None = None,
        budget_ms: float | None = None,
    ) -> list[TopK]:
        """As tapr.search.match.match: by stages where it is asked for, or pays."""

    def histograms(self, targets: Float32) -> list[NDArray[np.int64]]:
        """(Q, d) -> one histogram of similarities per target, see search/reference_weight.py."""


def top_k(query: CompiledQuery, bank: Bank, k: int, kernel: Kernel | None = None) -> TopK:
    return top_k_many([query], bank, k, kernel)[0]


def top_k_many(queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel | None = None) -> list[TopK]:
    """One TopK per query, in one sweep over the bank."""
    check_asked(queries, bank, k)
    if isinstance(bank, RemoteBank):
        return bank.top_k_many(queries, k)
    kernel = kernel or choose_kernel()
    levels = kernel.levels(bank)
    if k * _WORTH > len(bank):
        levels = levels[-1:]
    elif isinstance(kernel, SketchingKernel) and (sketches := sketches_of(queries)):
        return _SketchedTopKSearch(queries, bank, kernel, levels, k).run_after(sketches)
    elif isinstance(kernel, RankingKernel):
        levels = kernel.first_levels(queries, levels)
    race = _TopKSearch(queries, bank, kernel, levels, k)
    if isinstance(kernel, RankingKernel) and len(queries) == 1:
        found = kernel.search_one(queries[0], bank, levels, k, lambda: row_errors(bank))
        if found is not None:
            positions, scores, rescored = found
            return [race.result(0, positions, refuse_odd_scores(scores), rescored)]
    if len(levels) > 1:
        return race.run()
    if isinstance(kernel, RankingKernel):
        positions, scores = kernel.best(queries, bank, levels[0], k)
        refuse_odd_scores(scores)
    else:
        scanned = score_rows(queries, bank, kernel, levels[0], bank.rows)  # (Q, N)
        positions = np.stack([best_of(scores, k) for scores in scanned]) if len(scanned) else np.zeros((0, 0), np.int64)
        scores = np.take_along_axis(scanned, positions, axis=1)
    return [race.result(q, positions[q], scores[q]) for q in range(len(queries))]


def check_asked(queries: Sequence[CompiledQuery], bank: Bank, k: int) -> None:
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check(queries, bank)


class _TopKSearch:
    """Narrows each query's pictures with every more precise reading.

    A reading gives each picture a score, and a bound of its distance to the score of the last reading. The k best of
    the first reading are scored by the last one at once; the lowest of these scores is a threshold below the true k-th
    score. Pictures that cannot reach it are dropped; pictures that tie with the k-th are not.
    """

    def __init__(
        self, queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel, levels: Sequence[Level], k: int
    ) -> None:
        self._queries, self._bank, self._kernel, self._levels, self._k = queries, bank, kernel, levels, k
        self._last = levels[-1]

    def run(self) -> list[TopK]:
        return self._read_closer(self._shortlist(), self._levels[1:])

    def _read_closer(self, sifted: Sequence[Shortlist], levels: Sequence[Level]) -> list[TopK]:
        rest = [one.rest for one in sifted]
        scores = [np.zeros(0, np.float32)] * len(rest)
        for level in levels:
            # small sets skip the levels in between
            wanted = [q for q in range(len(rest)) if level == self._last or len(rest[q]) > _FEW]
            read = self._read(wanted, level, [rest[q] for q in wanted])
            for q, found in zip(wanted, read, strict=True):
                scores[q] = found
                if level != self._last:
                    rest[q] = rest[q][self._can_reach(q, level, found, rest[q], sifted[q].leaders)]
        return [self._finish(q, one, rest[q], scores[q]) for q, one in enumerate(sifted)]

    def _shortlist(self) -> list[Shortlist]:
        level, kernel = self._levels[0], self._kernel
        if isinstance(kernel, RankingKernel):
            sifted = kernel.shortlist(self._queries, self._bank, level, self._last, self._k, row_errors(self._bank))
            for one in sifted:
                refuse_odd_scores(one.leaders)  # NaN sorts first in a scan
            return sifted
        scanned = score_rows(self._queries, self._bank, kernel, level, self._bank.rows)  # (Q, N)
        firsts = [best_of(scores, self._k) for scores in scanned]
        every = np.arange(len(self._bank))
        found = []
        for q, (first, leaders) in enumerate(
            zip(firsts, self._read(range(len(firsts)), self._last, firsts), strict=True)
        ):
            rest = np.delete(every, first)
            kept = self._can_reach(q, level, scanned[q][rest], rest, leaders)
            found.append(Shortlist(first, leaders, rest[kept]))
        return found

    def _can_reach(
        self, q: int, level: Level, scores: Float32, positions: Positions, leaders: Float32
    ) -> NDArray[np.bool_]:
        highest = scores + self._radius(q, level, self._last, positions)
        return np.asarray(np.nextafter(highest, np.float32(np.inf)) >= leaders.min(initial=np.inf))

    def _finish(self, q: int, sifted: Shortlist, rest: Positions, scores: Float32) -> TopK:
        positions, scores = np.concatenate([sifted.first, rest]), np.concatenate([sifted.leaders, scores])
        order = np.argsort(positions)
        positions, scores = positions[order], scores[order]
        best = best_of(scores, self._k)
        return self.result(q, positions[best], scores[best], len(positions))

    def result(self, q: int, positions: Positions, scores: Float32, rescored: int | None = None) -> TopK:
        exact = not self._last.codes
        radii = None if exact else self._radius(q, self._last, None, positions)
        return TopK(positions, scores, self._kernel.name, exact, rescored if exact else None, radii)

    def _read(self, wanted: Sequence[int], level: Level, positions: Sequence[Positions]) -> list[Float32]:
        """Scores of each wanted query alone, for its own positions."""
        rows = [self._bank.rows[chosen] for chosen in positions]
        if isinstance(self._kernel, RankingKernel):
            read = self._kernel.read([self._queries[q] for q in wanted], self._bank, level, rows)
            return [refuse_odd_scores(scores) for scores in read]
        return [
            np.asarray(score_rows([self._queries[q]], self._bank, self._kernel, level, chosen)[0], np.float32)
            for q, chosen in zip(wanted, rows, strict=True)
        ]

    def _radius(self, q: int, level: Level, last: Level | None, positions: Positions) -> Float32:
        errors = row_errors(self._bank)[self._bank.rows[positions]]
        return radius(self._queries[q], self._kernel, level, last, errors, self._bank.card.locals_count)


class _SketchedTopKSearch(_TopKSearch):
    """The first reading uses sketches, which bound scores from above at a fraction of a scan's cost: see sketch.py."""

    def run_after(self, sketches: Sequence[Sketch]) -> list[TopK]:
        kernel, level, errors = self._kernel, level_of(self._levels), row_errors(self._bank)
        assert isinstance(kernel, SketchingKernel)
        rows, places = distinct(self._bank.rows, self._bank.row_count)
        limits = [sketch.longest(kernel, level, errors) for sketch in sketches]
        bounds = refuse_odd_scores(kernel.highest(sketches, limits, self._bank, level, rows))
        own = errors if rows is None else errors[rows]
        highest = [
            np.nextafter(found + sketch.slack(kernel, level, self._last, own, self._bank.card.locals_count), np.inf)
            for sketch, found in zip(sketches, bounds, strict=True)
        ]
        if places is not None:
            highest = [found[places] for found in highest]
        firsts = [best_of(found, self._k) for found in highest]
        leaders = self._read(range(len(firsts)), self._last, firsts)
        sifted = []
        for found, first, led in zip(highest, firsts, leaders, strict=True):
            open_ = found >= led.min()
            open_[first] = False
            sifted.append(Shortlist(first, led, np.flatnonzero(open_)))
        return self._read_closer(sifted, self._levels)


def _caution(radii: Float32) -> str:
    return (
        f"approximate: the bank holds int8 only, and each score is within {float(radii.max(initial=0)):.4f} of its "
        "fp16 value (docs/matching.md has the measured agreement)"
    )


def row_errors(bank: Bank) -> Float32:
    """(R,): the largest code error of each stored row's local vectors; 0 without codes."""
    if bank.precision == "fp16":
        return np.zeros(bank.row_count, np.float32)

    def read() -> Float32:
        worst = np.zeros(bank.row_count, np.float32)
        for block in bank.blocks():
            assert block.local_errors is not None
            worst[block.start : block.start + len(block)] = block.local_errors.max(axis=1)
        return worst

    return np.asarray(cached_for(bank.stored, "code errors", read), np.float32)
