"""A search that scores few pictures exactly, and knows whether the answer is exact.

The most promising candidates are scored exactly; the k-th best of them is the floor. Outlines bound every other
picture's score, and summaries bound those that are left more closely. What cannot reach the floor is ruled out. The
others are scored in the order of their bounds, until none is left (the answer is proven), as many were scored as were
asked for, or the time is over. Where time is limited, all of this is done with the most promising pictures first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel, Rows
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.row_blocks import distinct, parts_of
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import Resemblance, resemblance
from tapr.search.prefilter.card import card_of
from tapr.search.prefilter.limit import compiled_beside
from tapr.search.sweep import check, score_rows
from tapr.search.topk import TopK, row_errors
from tapr.store.block import Block
from tapr.types import Float32
from tapr.utils.read_ahead import read_ahead

_CANDIDATES = 128  # scored before any bound, or four times k
_BATCH = 256  # least number of pictures scored at a time
_PIECE = 1 << 16  # pictures bounded at a time
_FIRST, _GROWTH = 1 << 10, 2  # the same where time is limited: the first piece, and how much larger the next is


def top_k_by_stages(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    k: int,
    kernel: Kernel,
    budget: Budget = "exact",
    budget_ms: float | None = None,
    floors: Sequence[float] | None = None,
) -> list[TopK]:
    """The k best: those of top_k where `proof.proven`, otherwise the best of the pictures that were scored.

    `floors`: for each query, what the k-th best picture scores elsewhere. What cannot reach it is ruled out too.
    """
    deadline = None if budget_ms is None else monotonic() + budget_ms / 1000
    _check(queries, bank, k)
    card = card_of(kernel, bank)
    if card is not None and len(bank):
        from tapr.search.prefilter.by_card import top_k_by_card

        return [
            top_k_by_card(query, card, k, budget, deadline, floor)
            for query, floor in zip(queries, [None] * len(queries) if floors is None else floors, strict=True)
        ]
    hunts = _begun(queries, bank, k, kernel, budget)
    if floors is not None:
        for hunt, floor in zip(hunts, floors, strict=True):
            hunt.given_floor = np.float32(floor)
    if deadline is None:
        _bound_all(hunts)
    else:
        for hunt in hunts:
            hunt.go_on_until(deadline)
    return [hunt.result() for hunt in hunts]


def floors_of(queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel) -> list[Float32]:
    """The scores of each query's best candidates, best first, at most k: no k-th best score is below the last."""
    _check(queries, bank, k)
    card = card_of(kernel, bank)
    if card is not None and len(bank):
        from tapr.search.prefilter.by_card import best_scores

        return [best_scores(query, card, k) for query in queries]
    return [hunt.best_scores() for hunt in _begun(queries, bank, k, kernel, "exact")]


def candidates_for(k: int) -> int:
    """How many pictures are scored before any bound."""
    return max(_CANDIDATES, 4 * k)


def _check(queries: Sequence[CompiledQuery], bank: Bank, k: int) -> None:
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check(queries, bank)
    if bank.subspaces is None:
        raise BadInput("the gallery has no first stage: make one with tapr first-stage", code="no_prefilter")


def _begun(queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget) -> list[Hunt]:
    """With the candidates scored."""
    rows, places = distinct(bank.rows, bank.row_count)
    found = resemblance(queries, bank, rows, kernel) if queries else Resemblance(*np.zeros((2, 0, 0), np.float32))
    rows = np.arange(bank.row_count) if rows is None else rows
    hunts = []
    for query, promise, targets in zip(queries, found.promise, found.targets, strict=True):
        hunts.append(Hunt(query, bank, k, kernel, rows, places, budget, promise, targets))
        hunts[-1].read_best(candidates_for(k))
    return hunts


def _bound_all(hunts: Sequence[Hunt]) -> None:
    """All pictures in the order of the bank, in one pass for all queries; then what is open, query by query."""
    if not hunts:
        return
    one, targets = hunts[0], np.stack([hunt.targets for hunt in hunts])
    for start in range(0, len(one.rows), _PIECE):
        piece = slice(start, start + _PIECE)
        bounds = highest(
            [hunt.query for hunt in hunts], one.bank, one.rows[piece], one.kernel, one.level,
            closer=False, targets=targets[:, piece],
        )  # fmt: skip
        for hunt, found in zip(hunts, bounds, strict=True):
            hunt.highest[piece] = found
    for hunt in hunts:
        open_ = hunt.open()
        for start in range(0, len(open_), _PIECE):
            hunt.bound(open_[start : start + _PIECE], closer=True)
        hunt.read(open_)


class Hunt:
    """The rows of one query: the bounds of all, the scores of those that were read. Indices are those of `rows`."""

    def __init__(
        self, query: CompiledQuery, bank: Bank, k: int, kernel: Kernel, rows: Rows, places: Rows | None, budget: Budget,
        promise: Float32, targets: Float32,
    ) -> None:  # fmt: skip
        self.query, self.bank, self.kernel, self.rows, self.targets = query, bank, kernel, rows, targets
        self.level = kernel.levels(bank)[-1]
        self.highest = np.full(len(rows), np.inf, np.float32)
        self.given_floor = np.float32(-np.inf)
        self._k, self._places, self._promise = k, places, promise
        self._shared = None if places is None else np.bincount(places, minlength=len(rows))  # pictures of each row
        self._most = len(rows) if budget == "exact" else min(budget, len(rows))
        self._read: Rows = np.zeros(0, np.int64)
        self._scores: Float32 = np.zeros(0, np.float32)
        self._is_read = np.zeros(len(rows), bool)

    def read_best(self, count: int) -> None:
        """Score the most promising."""
        count = min(count, self._most)
        if count < len(self._promise):
            self._score(np.sort(np.argpartition(-self._promise, count - 1)[:count]))
        else:
            self._score(np.arange(len(self._promise)))

    def take(self, indices: Rows, other: Hunt) -> None:
        """What another hunt knows, whose rows are these."""
        self.highest[indices], self.given_floor = other.highest, other.given_floor
        self._read, self._scores = indices[other._read], other._scores
        self._is_read[self._read] = True

    def go_on_until(self, deadline: float) -> None:
        """Bound and read, the most promising first."""
        for piece in self._by_promise():
            for closer in (False, True):
                if monotonic() >= deadline:
                    return
                self.bound(piece if not closer else self._still(piece), closer=closer)
            self.read(piece, deadline)

    def bound(self, piece: Rows, *, closer: bool) -> None:
        if not len(piece):
            return
        rows = self.rows[piece]
        if closer:
            self._ask_for(rows, lambda block: [block.global_vectors, block.summaries])
        (found,) = highest(
            [self.query], self.bank, rows, self.kernel, self.level, closer=closer, targets=self.targets[None, piece]
        )
        self.highest[piece] = np.minimum(self.highest[piece], found)

    def read(self, piece: Rows, deadline: float | None = None) -> None:
        """Score what is open in this piece, in the order of the bounds."""
        while (left := self._still(piece)).size and len(self._read) < self._most:
            if deadline is not None and monotonic() >= deadline:
                return
            lot = min(max(_BATCH, len(self._read) // 4), self._most - len(self._read))
            if lot < len(left):
                left = np.sort(left[np.argpartition(-self.highest[left], lot - 1)[:lot]])
            self._score(left)

    def open(self) -> Rows:
        """What is not scored yet and can still be among the k best, ties included."""
        return np.flatnonzero(~self._is_read & (self.highest >= self.floor()))

    def best_scores(self) -> Float32:
        """At most k, best first."""
        return np.asarray(np.sort(self._known_scores())[::-1][: self._k])

    def result(self, pictures: Rows | None = None) -> TopK:
        """`pictures`: the positions of these pictures in the gallery, where they are not all of it."""
        if self._places is None:
            order = np.argsort(self._read)
            positions, scores = self._read[order], self._scores[order]
        else:
            known = np.full(len(self.rows), -np.inf, np.float32)
            known[self._read] = self._scores
            positions = np.flatnonzero(self._is_read[self._places])
            scores = known[self._places[positions]]
        best = best_of(scores, self._k)
        positions, scores = positions[best], scores[best]
        if pictures is not None:
            positions = pictures[positions]
        exact = not self.level.codes
        errors = None if exact else row_errors(self.bank)[self.bank.rows[positions]]
        count = self.bank.card.locals_count
        radii = None if errors is None else radius(self.query, self.kernel, self.level, None, errors, count)
        proof = Proof(len(self._read), len(self.open()), len(self.rows))
        name = self.kernel.name
        if isinstance(self.kernel, RankingKernel):  # and the bounds are not its own
            beside = compiled_beside(self.kernel)
            name = f"{beside.name if beside else 'numpy'} bounds, {name}"
        return TopK(positions, scores, name, exact and proof.proven, None, radii, proof=proof)

    def _by_promise(self) -> Iterator[Rows]:
        """The pictures in pieces, the most promising first; each piece in the order of the bank."""
        left, size = np.flatnonzero(~self._is_read), _FIRST
        while size < len(left):
            cut = np.argpartition(-self._promise[left], size - 1)
            yield np.sort(left[cut[:size]])
            left, size = left[cut[size:]], size * _GROWTH
        yield np.sort(left)

    def _still(self, piece: Rows) -> Rows:
        """What is open of a piece."""
        return piece[~self._is_read[piece] & (self.highest[piece] >= self.floor())]

    def floor(self) -> np.float32:
        scores = self._known_scores()
        own = np.float32(-np.inf) if len(scores) < self._k else np.partition(scores, -self._k)[-self._k]
        return max(own, self.given_floor)

    def _known_scores(self) -> Float32:
        return self._scores if self._shared is None else np.repeat(self._scores, self._shared[self._read])

    def _read_of(self, block: Block) -> list[NDArray[Any] | None]:
        vectors = [block.local_codes, block.local_scales] if self.level.codes else [block.local_vectors]
        return [block.global_vectors, *vectors]

    def _ask_for(self, rows: Rows, arrays: Callable[[Block], Iterable[NDArray[Any] | None]]) -> None:
        """These rows, ascending, are needed soon: they may lie on a disk."""
        for block, inside in parts_of(self.bank, rows):
            for array in arrays(block):
                if array is not None:
                    read_ahead(array, np.arange(len(block)) if inside is None else inside)

    def _score(self, chosen: NDArray[np.int64]) -> None:
        """Read these, ascending, and score them."""
        rows = self.rows[chosen]
        if not len(rows):
            return
        self._ask_for(rows, self._read_of)
        if isinstance(self.kernel, RankingKernel):
            (scores,) = self.kernel.read([self.query], self.bank, self.level, [rows])
            refuse_odd_scores(scores)
        else:
            scores = score_rows([self.query], self.bank, self.kernel, self.level, rows)[0]
        self._read, self._scores = np.concatenate([self._read, chosen]), np.concatenate([self._scores, scores])
        self._is_read[chosen] = True
