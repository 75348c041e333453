"""Find the exact k best pictures without scoring all: the one loop that prunes.

Every picture is bounded from above by the cheapest stage, and the most promising ones are scored. The k-th best score
is a floor: what cannot reach it is dropped. The rest is scored, the highest bound first, after further stages have
bounded it closer; every score can raise the floor. Pictures that tie with the floor stay, so that ties end in gallery
order. When nothing is left, the k best are proven. A budget of pictures or a deadline ends the loop earlier, and then
the answer says how many pictures are open.

Pictures are named by their index among the rows that are searched. Of a gallery in parts, each part is searched in two
calls: the first scores its most promising pictures, and the second begins with them and with the floor of all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import numpy as np

from tapr.search.kernels.base import Rows
from tapr.search.kernels.values import Values
from tapr.types import Float32


class Stage(Protocol):
    """A way to bound scores from above."""

    @property
    def min_pictures(self) -> int:
        """Fewer are scored without these bounds."""

    def bounds(self, queries: Sequence[int], rows: Any, floors: Float32 | None) -> Values:
        """Bound these rows (None: all) for these queries. What is below its query's floor may be left out or be bounded
        loosely.
        """


class Exact(Stage, Protocol):
    """The stage whose bounds are the scores themselves."""

    def score(self, rows: Sequence[Rows]) -> list[Float32]:
        """Score some rows of every query, each query as if it were alone."""

    def expect(self, rows: Rows) -> None:
        """Prepare for scoring these rows soon; they may lie on a disk."""


class Guess(Protocol):
    """A cheap order of all pictures that bounds nothing."""

    def promise(self) -> Values: ...


@dataclass(frozen=True)
class Pace:
    """How many pictures are looked at in one step where time is limited."""

    first: int
    largest: int
    smallest: int
    growth: int = 2


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of one search, cheapest first. plan.py chooses them."""

    exact: Exact
    wide: Sequence[Stage] = ()  # bound all that is left; none: all is scored
    narrow: Sequence[Stage] = ()  # bound what is about to be scored
    guess: Guess | None = None  # None: the first bounds say what is promising
    leaders: int = 0  # scored before anything is dropped; at least k
    smallest_batch: int = 1 << 62  # pictures scored at a time
    largest_batch: int = 1 << 62
    pace: Pace = Pace(1, 1, 1)


@dataclass(frozen=True, eq=False)
class Scored:
    """Pictures of a part of a gallery that were scored."""

    rows: Rows  # (n,) physical
    scores: Float32  # (n,) exact
    pictures: Rows  # (n,) how many of the searched pictures share each row


@dataclass(frozen=True, eq=False)
class Known:
    """What the second search of a part begins with."""

    candidates: Scored  # its own
    floor: float  # k pictures of the gallery reach it; -inf: not known


def floor_of(several: Sequence[Scored], k: int) -> float:
    """Return the score that the k best of these pictures reach; -inf if they are fewer."""
    scores = np.concatenate([np.repeat(part.scores, part.pictures) for part in several])
    return _kth_best(scores, k)


def _kth_best(scores: Float32, k: int) -> float:
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else -np.inf


@dataclass(eq=False)
class Ledger:
    """The state of one query: what was scored, and what is left with its bounds."""

    k: int
    shared: Rows | None  # how many pictures share each row; None: one
    unseen: int  # rows that no bound has looked at
    floor: float = -np.inf
    given_floor: float = -np.inf
    count: int = 0  # rows read in full: scored, or ruled out by a narrow stage
    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: Float32 = field(default_factory=lambda: np.zeros(0, np.float32))
    left: Rows = field(default_factory=lambda: np.zeros(0, np.int64))  # highest bound first
    highest: Float32 = field(default_factory=lambda: np.zeros(0, np.float32))

    def record(self, rows: Rows, scores: Float32) -> None:
        if not len(rows):
            return
        self.rows, self.scores = np.concatenate([self.rows, rows]), np.concatenate([self.scores, scores])
        self._raise_floor()

    def begin(self, rows: Rows, scores: Float32, floor: float) -> None:
        self.given_floor = self.floor = float(np.float32(floor))
        self.count = len(rows)
        self.record(rows, scores)

    def _raise_floor(self) -> None:
        """Keep the scores that can still matter, and take the k-th as the floor."""
        scores = self.scores if self.shared is None else np.repeat(self.scores, self.shared[self.rows])
        self.floor = max(_kth_best(scores, self.k), self.given_floor)

    def add(self, rows: Rows, highest: Float32) -> None:
        """Add bounded rows to what is left."""
        kept = (highest >= self.floor) & ~np.isin(rows, self.rows)
        rows, highest = np.concatenate([self.left, rows[kept]]), np.concatenate([self.highest, highest[kept]])
        order = np.argsort(-highest, kind="stable")
        self.left, self.highest = rows[order], highest[order]
        self.drop()

    def drop(self) -> None:
        """Drop what is below the floor."""
        end = len(self.left) - int(np.searchsorted(self.highest[::-1], np.float32(self.floor)))
        self.left, self.highest = self.left[:end], self.highest[:end]

    def take(self, count: int) -> Rows:
        rows, self.left, self.highest = np.sort(self.left[:count]), self.left[count:], self.highest[count:]
        self.count += len(rows)
        return rows


class Pruning:
    """One search of several queries at once."""

    def __init__(
        self,
        stages: Stages,
        queries: int,
        pictures: int,
        k: int,
        *,
        shared: Rows | None = None,
        budget: int | None = None,
    ) -> None:
        """`pictures`: rows to search; `shared`: how many pictures share each, None if these are the pictures in order;
        `budget`: rows that may be read in full, for each query.
        """
        self._stages, self._all, self._k, self._shared = stages, range(queries), k, shared
        self._budget = pictures if budget is None else min(budget, pictures)
        self.ledgers = [Ledger(k, shared, pictures) for _ in self._all]
        self._promise: Values | None = None

    def score_leaders(self) -> None:
        """Score the most promising pictures of every query."""
        stages = self._stages
        if not stages.wide:  # all are scored
            every = stages.exact.bounds(self._all, None, None)
            best = every.best(self._k)
            if self._shared is not None:  # rows are not in gallery order: all that tie with the last of the best count
                best = every.reaching(np.array([_kth_best(picked, self._k) for _, picked in best], np.float32))
            for ledger, (rows, picked) in zip(self.ledgers, best, strict=True):
                ledger.count, ledger.unseen = ledger.unseen, 0
                ledger.record(rows, picked)
            return
        first = [np.sort(rows) for rows, _ in self._promised().best(min(stages.leaders, self._budget))]
        for rows in first:
            stages.exact.expect(rows)
        for ledger, rows, scores in zip(self.ledgers, first, stages.exact.score(first), strict=True):
            ledger.count += len(rows)
            ledger.record(rows, scores)

    def finish(self, deadline: float | None = None) -> None:
        """Bound the others and score what is left, until nothing is left or a limit is reached."""
        if not self._stages.wide:
            return
        if deadline is not None:
            assert len(self.ledgers) == 1, "queries with a deadline are searched one by one"
            self._finish_by(deadline)
            return
        bounds = self._promise if self._stages.guess is None else None  # the first bounds, if there are any yet
        self._add(bounds or self._stages.wide[0].bounds(self._all, None, self._floors()))
        self._promise = None
        for ledger in self.ledgers:
            ledger.unseen = 0
        self._score_left()

    def _finish_by(self, deadline: float) -> None:
        """Bound and score one piece after the other, the most promising first; no larger than seems to fit."""
        (ledger,), pace = self.ledgers, self._stages.pace
        order, done, size = self._promised().descending(ledger.rows), 0, pace.first
        ledger.unseen = len(order)
        while done < len(order) and (begun := monotonic()) < deadline:
            piece = order[done : done + size]
            self._add(self._stages.wide[0].bounds(self._all, piece, self._floors()))
            done, ledger.unseen = done + len(piece), ledger.unseen - len(piece)
            self._score_left(deadline)
            ended = monotonic()
            fits = int(len(piece) * (deadline - ended) / max(ended - begun, 1e-9))
            size = min(pace.growth * size, pace.largest, max(pace.smallest, fits))

    def _promised(self) -> Values:
        if self._promise is None:
            stages = self._stages
            self._promise = stages.guess.promise() if stages.guess else stages.wide[0].bounds(self._all, None, None)
        return self._promise

    def _add(self, bounds: Values) -> None:
        """Add what reaches its query's floor, by these bounds and by those of the other wide stages."""
        for query, picked in enumerate(bounds.reaching(self._floors())):
            rows, highest = picked
            for stage in self._stages.wide[1:]:
                rows, highest = self._closer(stage, query, rows, highest)
            self.ledgers[query].add(rows, highest)

    def _closer(self, stage: Stage, query: int, rows: Rows, highest: Float32 | None = None) -> tuple[Rows, Float32]:
        """Return those of some ascending rows that a further stage does not rule out."""
        floors = np.array([self.ledgers[query].floor], np.float32)
        ((kept, bounds),) = stage.bounds([query], rows, floors).reaching(floors)
        if highest is not None:
            bounds = np.minimum(bounds, highest[np.searchsorted(rows, kept)])
        return kept, bounds

    def _score_left(self, deadline: float | None = None) -> None:
        """Score what is left in batches, the highest bound first."""
        stages, expected = self._stages, [0] * len(self.ledgers)
        while deadline is None or monotonic() < deadline:
            batches = []
            for query, ledger in enumerate(self.ledgers):
                largest = stages.largest_batch if deadline is None else min(stages.largest_batch, stages.smallest_batch)
                size = min(max(stages.smallest_batch, ledger.count // 4), largest, max(0, self._budget - ledger.count))
                # twice as many are expected, so that a disk reads while the processor scores
                ahead = ledger.left[expected[query] : 2 * size]
                stages.exact.expect(np.sort(ahead))
                expected[query] = max(0, max(expected[query], min(2 * size, len(ledger.left))) - size)
                batches.append(ledger.take(size))
            if not any(map(len, batches)):
                return
            for stage in stages.narrow:
                for query, rows in enumerate(batches):
                    if len(rows) > stage.min_pictures:
                        batches[query] = self._closer(stage, query, rows)[0]
            for ledger, rows, scores in zip(self.ledgers, batches, stages.exact.score(batches), strict=True):
                ledger.record(rows, scores)
                ledger.drop()

    def _floors(self) -> Float32:
        return np.array([ledger.floor for ledger in self.ledgers], np.float32)
