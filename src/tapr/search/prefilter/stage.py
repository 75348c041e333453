"""A search that scores few pictures exactly, and knows whether the answer is exact.

The most promising candidates are scored exactly; the k-th best of them is the floor. Outlines bound every other
picture's score, and summaries bound those that are left more closely. What cannot reach the floor is ruled out. The
others are scored in the order of their bounds, until none is left (the answer is proven), as many were scored as were
asked for, or the time is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from tapr.search.prefilter.card import Card, card_of
from tapr.search.prefilter.limit import compiled_beside
from tapr.search.sweep import check, score_rows
from tapr.search.topk import TopK, row_errors
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
) -> list[TopK]:
    """The k best: those of top_k where `proof.proven`, otherwise the best of the pictures that were scored."""
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check(queries, bank)
    if bank.subspaces is None:
        raise BadInput("the gallery has no first stage: make one with tapr first-stage", code="no_prefilter")
    deadline = None if budget_ms is None else monotonic() + budget_ms / 1000
    card = card_of(kernel, bank)
    rows, places = distinct(bank.rows, bank.row_count)
    rows = np.arange(bank.row_count) if rows is None else rows
    if card is not None and len(rows):
        return [top_k_by_card(query, card, k, rows, places, budget, deadline) for query in queries]
    hunts = [_Hunt(query, bank, k, kernel, rows, places, budget) for query in queries]
    if not len(rows):
        return [hunt.result() for hunt in hunts]
    for hunt, promise in zip(hunts, resemblance(queries, bank, rows, kernel), strict=True):
        hunt.read_best(promise, max(_CANDIDATES, 4 * k))
    for piece in _pieces(np.arange(len(rows)), deadline):
        bounds = highest(queries, bank, rows[piece], kernel, hunts[0].level, closer=False)
        for hunt, found in zip(hunts, bounds, strict=True):
            hunt.highest[piece] = found
    for hunt in hunts:
        hunt.look_closer(deadline)
        hunt.read_open(deadline)
    return [hunt.result() for hunt in hunts]


def top_k_by_card(
    query: CompiledQuery,
    card: Card,
    k: int,
    rows: Rows,
    places: Rows | None = None,
    budget: Budget = "exact",
    deadline: float | None = None,
) -> TopK:
    """The same with bounds from a GPU. Only what they leave comes to the host. `rows`, `places`: see `distinct`."""
    bank, reader, count = card.bank, card.reader, min(max(_CANDIDATES, 4 * k), len(rows))
    first = card.candidates(query, rows, count if budget == "exact" else min(budget, count))
    candidates = _Hunt(query, bank, k, reader, rows[first], None, "exact")
    candidates.read_all()
    # of pictures that share a row, one counts here: the floor is never too high
    in_time = None if deadline is None else lambda: monotonic() < deadline
    bounded = card.bounded(query, rows, candidates.floor(), in_time)
    kept = np.union1d(first, bounded.left)
    pictures, inside = kept, None
    if places is not None:
        at = np.searchsorted(kept, places)
        pictures = np.flatnonzero(kept[np.minimum(at, len(kept) - 1)] == places)
        inside = at[pictures]
    hunt = _Hunt(query, bank, k, reader, rows[kept], inside, budget)
    hunt.highest[np.searchsorted(kept, bounded.left)] = bounded.highest
    hunt.take(np.searchsorted(kept, first), candidates)
    if not card.closer:
        hunt.look_closer(deadline)
    hunt.read_open(deadline)
    found = hunt.result(pictures)
    assert found.proof is not None
    unseen = len(rows) - bounded.seen - int(np.count_nonzero(first >= bounded.seen))
    proof = Proof(found.proof.read, found.proof.open + unseen, len(rows))
    return replace(found, kernel=card.name, remarks=card.remarks, exact=found.exact and proof.proven, proof=proof)


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

    def read_all(self) -> None:
        self._score(np.arange(len(self._rows)))

    def take(self, indices: Rows, other: _Hunt) -> None:
        """What another hunt read, whose rows are these."""
        self._read, self._scores = indices[other._read], other._scores
        self._is_read[self._read] = True

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

    def result(self, pictures: Rows | None = None) -> TopK:
        """`pictures`: the positions of these pictures in the gallery, where they are not all of it."""
        if self._places is None:
            order = np.argsort(self._read)
            positions, scores = self._read[order], self._scores[order]
        else:
            known = np.full(len(self._rows), -np.inf, np.float32)
            known[self._read] = self._scores
            positions = np.flatnonzero(self._is_read[self._places])
            scores = known[self._places[positions]]
        best = best_of(scores, self._k)
        positions, scores = positions[best], scores[best]
        if pictures is not None:
            positions = pictures[positions]
        exact = not self.level.codes
        errors = None if exact else row_errors(self._bank)[self._bank.rows[positions]]
        count = self._bank.card.locals_count
        radii = None if errors is None else radius(self._query, self._kernel, self.level, None, errors, count)
        proof = Proof(len(self._read), len(self._open()), len(self._rows))
        name = self._kernel.name
        if isinstance(self._kernel, RankingKernel):  # and the bounds are not its own
            beside = compiled_beside(self._kernel)
            name = f"{beside.name if beside else 'numpy'} bounds, {name}"
        return TopK(positions, scores, name, exact and proof.proven, None, radii, proof=proof)

    def _open(self) -> Rows:
        """Indices of rows that are not scored yet and can still be among the k best, ties included."""
        return np.flatnonzero(~self._is_read & (self.highest >= self.floor()))

    def floor(self) -> np.float32:
        scores = self._scores if self._shared is None else np.repeat(self._scores, self._shared[self._read])
        return np.float32(-np.inf) if len(scores) < self._k else np.partition(scores, -self._k)[-self._k]

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
