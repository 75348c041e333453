"""What is known of the pictures for one query: bounds that become closer, and scores of those that were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from time import monotonic
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel, Rows
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.row_blocks import distinct
from tapr.search.kernels.sketch import SketchingKernel, level_of, sketches_of
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import resemblance
from tapr.search.prefilter.limit import compiled_beside
from tapr.search.prefilter.rounds import Known, Scored
from tapr.search.sweep import score_rows
from tapr.search.topk import TopK, row_errors
from tapr.store.block import Block
from tapr.types import Float32
from tapr.utils.read_ahead import are_in_memory, read_ahead

_CANDIDATES = 128  # scored before any bound, or four times k
_BATCH, _LARGEST_BATCH = 256, 1024  # pictures scored at a time
_AHEAD = 2  # times as many are asked for, so that a disk reads while the processor scores: more push each other out
PIECE = 1 << 16  # pictures bounded at a time
_FROM_DISK = 1 << 13  # the same where the records are read from a disk
_RECORDS = ("pooled", "outlines", "summaries", "global_vectors")  # what bounds read
# the same where time is limited: at first, how many times more the next time, and at most; and when little time is left
_FIRST, _GROWTH, _LARGEST, _SMALLEST = 1 << 10, 2, 1 << 14, 1 << 8


def candidate_count(k: int) -> int:
    return max(_CANDIDATES, 4 * k)


def searches_of(
    queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget
) -> list[StagedSearch]:
    if not queries:
        return []
    bank = cast(Bank, _Opened(bank))
    rows, places = distinct(bank.rows, bank.row_count)
    found = resemblance(queries, bank, rows, kernel)
    rows = np.arange(bank.row_count) if rows is None else rows
    return [
        StagedSearch(query, bank, k, kernel, rows, places, budget, promise, targets)
        for query, promise, targets in zip(queries, found.promise, found.targets, strict=True)
    ]


def bound_all(searches: Sequence[StagedSearch]) -> None:
    """All pictures in the order of the bank, in one pass for all queries; then what is open, query by query."""
    if not searches:
        return
    one, targets = searches[0], np.stack([search.targets for search in searches])
    floors = np.array([search.floor() for search in searches], np.float32)
    for piece in one.pieces():
        bounds = highest(
            [search.query for search in searches], one.bank, one.rows[piece], one.kernel, one.level, floors=floors,
            targets=targets[:, piece],
        )  # fmt: skip
        for search, found in zip(searches, bounds, strict=True):
            search.highest[piece] = found
    for search in searches:
        search.read(search.open())


class _Opened:
    """A bank of many files whose blocks are looked up once for a whole search."""

    def __init__(self, bank: Bank) -> None:
        self._bank, self._blocks = bank, list(bank.blocks())

    def blocks(self) -> Iterator[Block]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._bank)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)


class StagedSearch:
    """The rows of one query: the bounds of all, the scores of those that were read. Indices are those of `rows`."""

    def __init__(
        self, query: CompiledQuery, bank: Bank, k: int, kernel: Kernel, rows: Rows, places: Rows | None, budget: Budget,
        promise: Float32, targets: Float32,
    ) -> None:  # fmt: skip
        self.query, self.bank, self.kernel, self.rows, self.targets = query, bank, kernel, rows, targets
        self.level = kernel.levels(bank)[-1]
        self.highest = np.full(len(rows), np.inf, np.float32)
        self._k, self._places, self._promise = k, places, promise
        self._shared = None if places is None else np.bincount(places, minlength=len(rows))  # pictures of each row
        self._most = len(rows) if budget == "exact" else min(budget, len(rows))
        self._count = 0  # of those read in full: scored, or ruled out by a sketch
        self._read: Rows = np.zeros(0, np.int64)  # those scored
        self._scores: Float32 = np.zeros(0, np.float32)
        self._is_read = np.zeros(len(rows), bool)
        self._known_floor = np.float32(-np.inf)

    def begin_with(self, known: Known) -> None:
        self._read, self._scores = np.searchsorted(self.rows, known.candidates.rows), known.candidates.scores
        self._is_read[self._read] = True
        self._count = len(self._read)
        self._known_floor = np.float32(known.floor)

    def take(self, indices: Rows, other: StagedSearch) -> None:
        """What another search knows, whose rows are these."""
        self.highest[indices], self._known_floor = other.highest, other._known_floor
        self._read, self._scores, self._count = indices[other._read], other._scores, other._count
        self._is_read[self._read] = True

    def scored(self) -> Scored:
        shared = np.ones(len(self._read), np.int64) if self._shared is None else self._shared[self._read]
        return Scored(self.rows[self._read], self._scores, shared)

    def read_best(self) -> None:
        """Score the most promising."""
        count, best = min(candidate_count(self._k), self._most), self._promising
        if count < len(best):
            best = np.sort(best[np.argpartition(-self._promise[best], count - 1)[:count]])
        self._ask_for(self.rows[best], *self._vectors)
        self._count += len(best)
        self._score(best)

    def go_on_until(self, deadline: float) -> None:
        """Bound and read, the most promising first; no more at a time than seems to fit into what is left of it."""
        left, size = self._by_promise(), _FIRST
        while len(left) and (begun := monotonic()) < deadline:
            piece, left = np.sort(left[:size]), left[size:]
            self.bound(piece)
            self.read(piece, deadline)
            ended = monotonic()
            fits = int(len(piece) * (deadline - ended) / max(ended - begun, 1e-9))
            size = min(_GROWTH * size, _LARGEST, max(_SMALLEST, fits))

    def pieces(self) -> Iterator[slice]:
        """All, in the order of the bank; of what lies on a disk, one is asked for while that before it is bounded."""
        size, on_disk = PIECE, not all(are_in_memory(*self._files(kind), self.rows) for kind in _RECORDS)
        if on_disk:
            size = min(PIECE, _FROM_DISK)
            self._ask_for(self.rows[:size], *_RECORDS)
        for start in range(0, len(self.rows), size):
            if on_disk:
                self._ask_for(self.rows[start + size : start + 2 * size], *_RECORDS)
            yield slice(start, start + size)

    def bound(self, piece: Rows) -> None:
        if not len(piece):
            return
        rows = self.rows[piece]
        self._ask_for(rows, *_RECORDS)
        (found,) = highest(
            [self.query], self.bank, rows, self.kernel, self.level, floors=np.array([self.floor()], np.float32),
            targets=self.targets[None, piece],
        )  # fmt: skip
        self.highest[piece] = np.minimum(self.highest[piece], found)

    def read(self, piece: Rows, deadline: float | None = None) -> None:
        """Score what is open in this piece, in the order of the bounds."""
        left = self._still(piece)
        left = left[np.argsort(-self.highest[left], kind="stable")]
        asked = 0
        while len(left) and self._count < self._most and not (deadline is not None and monotonic() >= deadline):
            most = _LARGEST_BATCH if deadline is None else _BATCH
            lot = min(max(_BATCH, self._count // 4), most, self._most - self._count, len(left))
            self._ask_for(self.rows[np.sort(left[asked : _AHEAD * lot])], *self._vectors)
            chosen = np.sort(left[:lot])
            self._count += lot
            self._sketch(chosen)
            self._score(self._still(chosen))
            left, asked = left[lot:], max(asked, _AHEAD * lot) - lot
            left = left[self.highest[left] >= self.floor()]  # cuts off the end

    def _sketch(self, chosen: Rows) -> None:
        """Bound these by a sketch of the reference, where it has one: that reads them whole and multiplies less."""
        if not isinstance(self.kernel, SketchingKernel) or (sketches := sketches_of([self.query])) is None:
            return
        (sketch,), rows = sketches, self.rows[chosen]
        level, errors = level_of(self.kernel.levels(self.bank)), row_errors(self.bank)
        limit = sketch.longest(self.kernel, level, errors)
        (bounds,) = self.kernel.highest(sketches, [limit], self.bank, level, rows)
        slack = sketch.slack(self.kernel, level, self.level, errors[rows], self.bank.card.locals_count)
        found = np.nextafter(refuse_odd_scores(bounds) + slack, np.float32(np.inf))
        self.highest[chosen] = np.minimum(self.highest[chosen], found)

    def open(self) -> Rows:
        """What is not scored yet and can still be among the k best, ties included."""
        return np.flatnonzero(~self._is_read & (self.highest >= self.floor()))

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
        best = best[scores[best] >= self._known_floor]
        positions, scores = positions[best], scores[best]
        if pictures is not None:
            positions = pictures[positions]
        exact = not self.level.codes
        errors = None if exact else row_errors(self.bank)[self.bank.rows[positions]]
        count = self.bank.card.locals_count
        radii = None if errors is None else radius(self.query, self.kernel, self.level, None, errors, count)
        proof = Proof(self._count, len(self.open()), len(self.rows))
        name = self.kernel.name
        if isinstance(self.kernel, RankingKernel):  # and the bounds are not its own
            beside = compiled_beside(self.kernel)
            name = f"{beside.name if beside else 'numpy'} bounds, {name}"
        return TopK(positions, scores, name, exact and proof.proven, None, radii, proof=proof)

    def _by_promise(self) -> Rows:
        """What is not read yet: the most promising one by one, then the others in the order of the bank."""
        others = ~self._is_read
        others[self._promising] = False
        best = self._promising[~self._is_read[self._promising]]
        return np.concatenate([best[np.argsort(-self._promise[best])], np.flatnonzero(others)])

    @cached_property
    def _promising(self) -> Rows:
        """About PIECE of the most promising, ascending: to order all would take longer than most limits."""
        pictures = len(self._promise)
        if pictures > PIECE:
            some = self._promise[:: pictures // PIECE + 1]
            rank = len(some) * PIECE // pictures
            found = np.flatnonzero(self._promise >= np.partition(some, -rank)[-rank])
            if len(found) >= candidate_count(self._k):
                return found
        return np.arange(pictures)

    def _still(self, piece: Rows) -> Rows:
        """What is open of a piece."""
        return piece[~self._is_read[piece] & (self.highest[piece] >= self.floor())]

    def floor(self) -> np.float32:
        scores = self._scores if self._shared is None else np.repeat(self._scores, self._shared[self._read])
        own = np.float32(-np.inf) if len(scores) < self._k else np.partition(scores, -self._k)[-self._k]
        return max(own, self._known_floor)

    @property
    def _vectors(self) -> tuple[str, ...]:
        """What an exact score reads."""
        return ("global_vectors", *(("local_codes", "local_scales") if self.level.codes else ("local_vectors",)))

    def _ask_for(self, rows: Rows, *kinds: str) -> None:
        """These rows, ascending, are needed soon: they may lie on a disk."""
        for kind in kinds:
            read_ahead(*self._files(kind), rows)

    def _files(self, kind: str) -> tuple[list[NDArray[Any]], Rows]:
        """The arrays of a kind, and where each begins."""
        blocks = list(self.bank.blocks())
        return [getattr(block, kind) for block in blocks], np.array([block.start for block in blocks], np.int64)

    def _score(self, chosen: NDArray[np.int64]) -> None:
        """Read these, ascending, and score them."""
        rows = self.rows[chosen]
        if not len(rows):
            return
        if isinstance(self.kernel, RankingKernel):
            (scores,) = self.kernel.read([self.query], self.bank, self.level, [rows])
            refuse_odd_scores(scores)
        else:
            scores = score_rows([self.query], self.bank, self.kernel, self.level, rows)[0]
        self._read, self._scores = np.concatenate([self._read, chosen]), np.concatenate([self._scores, scores])
        self._is_read[chosen] = True
