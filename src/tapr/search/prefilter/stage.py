"""A search that scores few pictures exactly, and knows whether the answer is exact.

The most promising candidates are scored exactly; the k-th best of them is the floor. Outlines bound every other
picture's score, and summaries bound those that are left more closely. What cannot reach the floor is ruled out. The
others are scored in the order of their bounds, until none is left (the answer is proven), as many were scored as were
asked for, or the time is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel, Rows
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.row_blocks import distinct
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import resemblance
from tapr.search.prefilter.rounds import Known, Scored
from tapr.search.sweep import score_rows
from tapr.search.topk import TopK, check_asked, row_errors
from tapr.types import Float32

_CANDIDATES = 128  # scored before any bound, or four times k
_BATCH = 256  # least number of pictures scored at a time
_PIECE = 1 << 16  # pictures bounded at a time
_TIMED = 1 << 12  # the same where the clock is looked at after each


def top_k_by_stages(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    k: int,
    kernel: Kernel,
    budget: Budget = "exact",
    budget_ms: float | None = None,
    known: Sequence[Known] | None = None,
) -> list[TopK]:
    """The k best: those of top_k where `proof.proven`, otherwise the best of the pictures that were scored.

    Of a part of a gallery, `known` is what rounds.py says, one per query; pictures below its floor are left out.
    """
    deadline = None if budget_ms is None else monotonic() + budget_ms / 1000
    rows, hunts = _hunts(queries, bank, k, kernel, budget)
    if not len(rows):
        return [hunt.result() for hunt in hunts]
    if known is None:
        _read_candidates(hunts, queries, bank, k, kernel, rows)
    else:
        for hunt, one in zip(hunts, known, strict=True):
            hunt.begin_with(one)
    for piece in _pieces(np.arange(len(rows)), deadline):
        bounds = highest(queries, bank, rows[piece], kernel, hunts[0].level, closer=False)
        for hunt, found in zip(hunts, bounds, strict=True):
            hunt.highest[piece] = found
    for hunt in hunts:
        hunt.look_closer(deadline)
        hunt.read_open(deadline)
    return [hunt.result() for hunt in hunts]


def candidates_of(
    queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget = "exact"
) -> list[Scored]:
    """The first step alone: each query's most promising pictures, scored exactly."""
    rows, hunts = _hunts(queries, bank, k, kernel, budget)
    if len(rows):
        _read_candidates(hunts, queries, bank, k, kernel, rows)
    return [hunt.scored() for hunt in hunts]


def no_first_stage() -> BadInput:
    return BadInput("the gallery has no first stage: make one with tapr first-stage", code="no_prefilter")


def _hunts(
    queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget
) -> tuple[Rows, list[_Hunt]]:
    check_asked(queries, bank, k)
    if bank.subspaces is None:
        raise no_first_stage()
    rows, places = distinct(bank.rows, bank.row_count)
    rows = np.arange(bank.row_count) if rows is None else rows
    return rows, [_Hunt(query, bank, k, kernel, rows, places, budget) for query in queries]


def _read_candidates(
    hunts: Sequence[_Hunt], queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, rows: Rows
) -> None:
    for hunt, promise in zip(hunts, resemblance(queries, bank, rows, kernel), strict=True):
        hunt.read_best(promise, max(_CANDIDATES, 4 * k))


def _pieces(indices: Rows, deadline: float | None) -> Iterator[Rows]:
    size = _PIECE if deadline is None else _TIMED
    for start in range(0, len(indices), size):
        if deadline is not None and monotonic() >= deadline:
            return
        yield indices[start : start + size]


class _Hunt:
    """The rows of one query: the bounds of all, the scores of those that were read."""

    def __init__(
        self, query: CompiledQuery, bank: Bank, k: int, kernel: Kernel, rows: Rows, places: Rows | None, budget: Budget
    ) -> None:
        self._query, self._bank, self._k, self._kernel, self._rows, self._places = query, bank, k, kernel, rows, places
        self.level = kernel.levels(bank)[-1]
        self.highest = np.full(len(rows), np.inf, np.float32)
        self._shared = None if places is None else np.bincount(places, minlength=len(rows))  # pictures of each row
        self._most = len(rows) if budget == "exact" else min(budget, len(rows))
        self._read: Rows = np.zeros(0, np.int64)
        self._scores: Float32 = np.zeros(0, np.float32)
        self._is_read = np.zeros(len(rows), bool)
        self._known_floor = np.float32(-np.inf)

    def begin_with(self, known: Known) -> None:
        self._read, self._scores = np.searchsorted(self._rows, known.candidates.rows), known.candidates.scores
        self._is_read[self._read] = True
        self._known_floor = np.float32(known.floor)

    def scored(self) -> Scored:
        shared = np.ones(len(self._read), np.int64) if self._shared is None else self._shared[self._read]
        return Scored(self._rows[self._read], self._scores, shared)

    def read_best(self, promise: Float32, count: int) -> None:
        count = min(count, self._most)
        best = np.argpartition(-promise, count - 1)[:count] if count < len(promise) else np.arange(len(promise))
        self._score(np.sort(best))

    def look_closer(self, deadline: float | None) -> None:
        for piece in _pieces(self._open(), deadline):
            (found,) = highest([self._query], self._bank, self._rows[piece], self._kernel, self.level, closer=True)
            self.highest[piece] = np.minimum(self.highest[piece], found)

    def read_open(self, deadline: float | None) -> None:
        while (left := self._open()).size and len(self._read) < self._most:
            if deadline is not None and monotonic() >= deadline:
                return
            lot = min(max(_BATCH, len(self._read) // 4), self._most - len(self._read))
            if lot < len(left):
                left = np.sort(left[np.argpartition(-self.highest[left], lot - 1)[:lot]])
            self._score(left)

    def result(self) -> TopK:
        if self._places is None:
            order = np.argsort(self._read)
            positions, scores = self._read[order], self._scores[order]
        else:
            known = np.full(len(self._rows), -np.inf, np.float32)
            known[self._read] = self._scores
            positions = np.flatnonzero(self._is_read[self._places])
            scores = known[self._places[positions]]
        best = best_of(scores, self._k)
        best = best[scores[best] >= self._known_floor]
        positions, scores = positions[best], scores[best]
        exact = not self.level.codes
        errors = None if exact else row_errors(self._bank)[self._bank.rows[positions]]
        count = self._bank.card.locals_count
        radii = None if errors is None else radius(self._query, self._kernel, self.level, None, errors, count)
        proof = Proof(len(self._read), len(self._open()), len(self._rows))
        return TopK(positions, scores, self._kernel.name, exact and proof.proven, None, radii, proof=proof)

    def _open(self) -> Rows:
        """Indices of rows that are not scored yet and can still be among the k best, ties included."""
        return np.flatnonzero(~self._is_read & (self.highest >= self._floor()))

    def _floor(self) -> np.float32:
        scores = self._scores if self._shared is None else np.repeat(self._scores, self._shared[self._read])
        own = np.float32(-np.inf) if len(scores) < self._k else np.partition(scores, -self._k)[-self._k]
        return max(own, self._known_floor)

    def _score(self, chosen: NDArray[np.int64]) -> None:
        """Read these, ascending, and score them."""
        rows = self._rows[chosen]
        if not len(rows):
            return
        if isinstance(self._kernel, RankingKernel):
            (scores,) = self._kernel.read([self._query], self._bank, self.level, [rows])
            refuse_odd_scores(scores)
        else:
            scores = score_rows([self._query], self._bank, self._kernel, self.level, rows)[0]
        self._read, self._scores = np.concatenate([self._read, chosen]), np.concatenate([self._scores, scores])
        self._is_read[chosen] = True
