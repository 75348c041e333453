"""The one loop that finds the exact k best, with arrays in the place of stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tapr.search import prune
from tapr.search.kernels import values
from tapr.search.kernels.base import Rows
from tapr.search.kernels.top_scores import best_of
from tapr.search.kernels.values import HostValues
from tapr.search.prune import Known, Ledger, Pace, Pruning, Scored, Stages, floor_of
from tapr.types import Float32

FOREVER = 1e9


@dataclass(eq=False)
class Table:
    """A stage whose bounds or scores are known beforehand."""

    numbers: Float32  # (Q, R)
    min_pictures: int = 0
    calls: list[tuple[str, list[int]]] = field(default_factory=list)  # what was asked, of which rows

    def bounds(self, queries: Sequence[int], rows: Any, floors: Float32 | None) -> HostValues:
        chosen = np.arange(self.numbers.shape[1]) if rows is None else np.sort(rows)
        self.calls.append(("bounds", chosen.tolist()))
        return HostValues(self.numbers[list(queries)][:, chosen], None if rows is None else chosen)

    def promise(self) -> HostValues:
        return HostValues(self.numbers)

    def score(self, rows: Sequence[Rows]) -> list[Float32]:
        for chosen in rows:
            assert (np.diff(chosen) > 0).all(), "rows ascend"
            self.calls.append(("score", chosen.tolist()))
        return [numbers[chosen] for numbers, chosen in zip(self.numbers, rows, strict=True)]

    def expect(self, rows: Rows) -> None:
        self.calls.append(("expect", rows.tolist()))

    def asked(self, what: str) -> list[list[int]]:
        return [rows for kind, rows in self.calls if kind == what and rows]


@dataclass(frozen=True)
class Case:
    """Scores on a coarse grid, so that many tie, and bounds of which some are reached."""

    scores: Float32
    bounds: tuple[Float32, ...]
    promise: Float32
    k: int
    shared: Rows | None

    @classmethod
    def of(cls, rng: np.random.Generator) -> Case:
        queries, pictures = int(rng.integers(1, 4)), int(rng.integers(0, 60))
        scores = np.asarray(rng.integers(-6, 7, (queries, pictures)) / 4, np.float32)
        slack = [rng.integers(0, width, scores.shape) / np.float32(4) for width in (12, 5, 2)]
        promises = (scores, -scores, rng.permuted(scores, axis=1), np.zeros_like(scores))
        shared = rng.integers(1, 4, pictures) if rng.random() < 0.3 else None
        bounds = tuple(np.asarray(scores + more, np.float32) for more in slack)
        k = int(rng.integers(1, 1 + max(1, pictures + 3)))
        return cls(scores, bounds, promises[rng.integers(4)], k, shared)

    def stages(self, rng: np.random.Generator) -> Stages:
        wide, narrow = int(rng.integers(0, 3)), int(rng.integers(0, 2))
        guess = Table(self.promise) if rng.random() < 0.5 else None
        return Stages(
            Table(self.scores),
            wide=[Table(bounds) for bounds in self.bounds[:wide]],
            narrow=[Table(bounds, int(rng.integers(0, 3))) for bounds in self.bounds[2 : 2 + narrow]],
            guess=guess,
            leaders=self.k + int(rng.integers(0, 3)),
            smallest_batch=int(rng.integers(1, 9)),
            largest_batch=int(rng.integers(9, 30)),
            pace=Pace(first=int(rng.integers(1, 9)), largest=20, smallest=2),
        )

    def searched(
        self, stages: Stages, budget: int | None = None, known: Known | None = None, deadline: float | None = None
    ) -> Pruning:
        queries, pictures = self.scores.shape
        search = Pruning(stages, queries, pictures, self.k, shared=self.shared, budget=budget)
        if known is None:
            search.score_leaders()
        else:
            for ledger in search.ledgers:
                ledger.begin(known.candidates.rows, known.candidates.scores, known.floor)
        search.finish(deadline)
        return search

    def best(self, query: int) -> list[int]:
        """All that are not below the k-th best."""
        scores = self.scores[query]
        each = scores if self.shared is None else np.repeat(scores, self.shared)
        floor = -np.inf if len(each) < self.k else np.sort(each)[-self.k]
        return np.flatnonzero(scores >= floor).tolist()


def found_by(ledger: Ledger, case: Case, query: int) -> None:
    """The k best are among what was scored, with all that tie where they must; and the scores are right."""
    assert len(set(ledger.rows.tolist())) == len(ledger.rows), "nothing is scored twice"
    np.testing.assert_array_equal(ledger.scores, case.scores[query][ledger.rows])
    order = np.argsort(ledger.rows)
    rows, scores = ledger.rows[order], ledger.scores[order]
    if case.shared is None:
        np.testing.assert_array_equal(rows[best_of(scores, case.k)], best_of(case.scores[query], case.k))
    else:
        assert set(case.best(query)) <= set(rows.tolist())


@pytest.mark.parametrize("seed", range(10))
def test_any_stages_end_in_the_k_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        case = Case.of(rng)
        search = case.searched(case.stages(rng))
        for query, ledger in enumerate(search.ledgers):
            assert len(ledger.left) == ledger.unseen == 0
            found_by(ledger, case, query)


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_is_kept_and_what_it_leaves_open_is_said(seed: int) -> None:
    rng, limited = np.random.default_rng(seed), 0
    for _ in range(60):
        case, budget = Case.of(rng), int(rng.integers(1, 40))
        stages = case.stages(rng)
        if not stages.wide:
            continue
        search = case.searched(stages, budget)
        for query, ledger in enumerate(search.ledgers):
            assert len(ledger.rows) <= ledger.count <= min(budget, case.scores.shape[1])
            missing = set(best_of(case.scores[query], case.k).tolist()) - set(ledger.rows.tolist())
            if case.shared is None:
                assert missing <= set(ledger.left.tolist())
            if not len(ledger.left):
                found_by(ledger, case, query)
            limited += len(ledger.left) > 0
    assert limited


@pytest.mark.parametrize("seed", range(5))
def test_pieces_by_promise_end_in_the_k_best_if_there_is_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        case = Case.of(rng)
        case = Case(case.scores[:1], tuple(bounds[:1] for bounds in case.bounds), case.promise[:1], case.k, case.shared)
        (ledger,) = case.searched(case.stages(rng), deadline=FOREVER * 10).ledgers
        assert len(ledger.left) == ledger.unseen == 0
        found_by(ledger, case, 0)


def limited(pictures: int, promise: Float32, **named: Any) -> tuple[Case, Stages]:
    scores = np.arange(pictures, dtype=np.float32)[None]
    case = Case(scores, (scores,), promise, 3, None)
    return case, Stages(Table(scores), wide=[Table(scores + 1e6)], guess=Table(promise), leaders=12, **named)


def test_when_the_time_is_over_the_rest_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by a second at every look."""
    promise = np.random.default_rng(1).permutation(150).astype(np.float32)[None]
    for seconds, unseen, left in ((-0.5, 138, 0), (0.5, 118, 20), (1.5, 118, 10), (1000, 0, 0)):
        case, stages = limited(150, promise, smallest_batch=10, largest_batch=10, pace=Pace(20, 100, 2))
        clock = iter(range(10_000))
        monkeypatch.setattr(prune, "monotonic", lambda clock=clock: float(next(clock)))
        (ledger,) = case.searched(stages, deadline=seconds).ledgers
        assert (ledger.unseen, len(ledger.left)) == (unseen, left)


def test_pieces_follow_the_promise_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    promise = np.random.default_rng(1).permutation(150)
    case, stages = limited(150, promise[None].astype(np.float32), pace=Pace(20, 100, 2))
    case.searched(stages, deadline=FOREVER * 10)
    pieces = stages.wide[0].asked("bounds")  # type: ignore[attr-defined]
    assert [len(piece) for piece in pieces] == [20, 40, 78]  # after 12 leaders
    assert promise[pieces[0]].min() > promise[pieces[1]].max()
    assert promise[pieces[1]].min() > promise[pieces[2]].max()


def test_no_more_is_bounded_than_seems_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture takes a second: the last piece is as large as the time that is left, or the smallest."""
    now = [0.0]
    monkeypatch.setattr(prune, "monotonic", lambda: now[0])

    class Slow(Table):
        def bounds(self, queries: Sequence[int], rows: Any, floors: Float32 | None) -> HostValues:
            now[0] += len(rows)
            return super().bounds(queries, rows, floors)

    for seconds, sizes in ((75.0, [20, 40, 15]), (61.0, [20, 40, 4])):
        now[0] = 0.0
        case, stages = limited(150, np.zeros((1, 150), np.float32), pace=Pace(20, 100, 4))
        slow = Slow(np.full((1, 150), -1, np.float32))  # rules everything out
        stages = Stages(stages.exact, wide=[slow], guess=stages.guess, leaders=12, pace=stages.pace)
        case.searched(stages, deadline=seconds)
        assert [len(piece) for piece in slow.asked("bounds")] == sizes


def test_a_floor_from_elsewhere_rules_out_and_ties_with_it_stay() -> None:
    scores = np.array([[5, 4, 4, 3, 2, 1]], np.float32)
    case = Case(scores, (), scores, 2, None)
    for floor, scored in ((4.0, [0, 1, 2]), (4.5, [0]), (6.0, []), (-np.inf, [0, 1, 2])):
        own = Scored(np.array([4]), np.array([2], np.float32), np.ones(1, np.int64))
        stages = Stages(Table(scores), wide=[Table(scores)], guess=Table(scores), leaders=2, smallest_batch=2)
        (ledger,) = case.searched(stages, known=Known(own, floor)).ledgers
        assert sorted(set(ledger.rows.tolist()) - {4}) == scored
        assert len(ledger.left) == 0


def test_a_narrow_stage_rules_out_before_pictures_are_scored_and_counts_as_reading() -> None:
    scores = np.linspace(1, 0, 50, dtype=np.float32)[None]
    loose, close = np.full_like(scores, 2), scores + np.float32(1e-3)
    counts = []
    for narrow in ([], [Table(close)], [Table(close, min_pictures=20)]):
        exact = Table(scores)
        stages = Stages(
            exact,
            wide=[Table(loose)],
            narrow=narrow,
            guess=Table(scores),
            leaders=5,
            smallest_batch=20,
            largest_batch=20,
        )
        (ledger,) = Case(scores, (), scores, 5, None).searched(stages).ledgers
        assert ledger.count == 50
        counts.append(sum(map(len, exact.asked("score"))))
    assert counts == [50, 5, 50]


def test_what_is_scored_was_expected_and_only_once() -> None:
    scores = np.linspace(1, 0, 90, dtype=np.float32)[None]
    exact = Table(scores)
    stages = Stages(exact, wide=[Table(scores + 2)], guess=Table(scores), leaders=5, smallest_batch=8, largest_batch=16)
    Case(scores, (), scores, 5, None).searched(stages)
    expected: set[int] = set()
    for what, rows in exact.calls:
        assert expected.isdisjoint(rows) if what == "expect" else expected.issuperset(rows)
        expected.update(rows)
    assert expected == set(range(90))


def test_a_single_sweep_scores_all_pictures_of_all_queries() -> None:
    scores = np.random.default_rng(3).integers(0, 5, (3, 40)).astype(np.float32)
    exact = Table(scores)
    case = Case(scores, (), scores, 4, None)
    for query, ledger in enumerate(case.searched(Stages(exact)).ledgers):
        found_by(ledger, case, query)
    assert exact.calls == [("bounds", list(range(40)))]


def test_floors_count_every_picture_that_shares_a_row() -> None:
    first = Scored(np.array([4, 7]), np.array([0.5, 0.1], np.float32), np.array([1, 3]))
    second = Scored(np.array([0]), np.array([0.3], np.float32), np.array([1]))
    floors = [floor_of([first, second], k) for k in (1, 2, 3, 5, 6)]
    assert floors == pytest.approx([0.5, 0.3, 0.1, 0.1, -np.inf])


def test_the_best_of_many_are_found_by_a_sample() -> None:
    rng = np.random.default_rng(4)
    for numbers in (
        rng.standard_normal(300_000),
        np.arange(300_000),
        -np.arange(300_000),
        rng.integers(0, 3, 300_000),
        np.zeros(300_000),
        np.where(np.arange(300_000) % 9 == 0, -1, rng.random(300_000)),
    ):
        numbers = numbers.astype(np.float32)  # noqa: PLW2901
        for k in (1, 10, 128, 5000, 299_999):
            np.testing.assert_array_equal(best_of(numbers, k), np.argsort(-numbers, kind="stable")[:k])


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_the_most_promising_come_in_order_and_the_others_as_they_lie(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "MAX_PICTURES_ORDERED", 37)
    rng = np.random.default_rng(21)
    for promise in (np.arange(300) // step, -(np.arange(300) // step), rng.integers(0, 300, 300) // step):
        skipped = np.sort(rng.permutation(300)[:12])
        order = HostValues(promise[None].astype(np.float32)).descending(skipped)
        np.testing.assert_array_equal(np.sort(np.concatenate([skipped, order])), np.arange(300))
        some = int((~np.isin(np.flatnonzero(promise >= np.sort(promise)[-37]), skipped)).sum())
        assert (np.diff(promise[order[:some]]) <= 0).all()
        assert (np.diff(order[some:]) > 0).all()
        assert promise[order[some:]].max(initial=-1000) < np.sort(promise)[-37]
