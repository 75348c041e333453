from __future__ import annotations

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.metrics import AnswerRanks, Metric, Outcome
from tapr.evaluate.significance import difference, interval

R1 = Metric("R", 1)


def outcome(hits: list[bool]) -> Outcome:
    places = tuple((AnswerRanks((1.0 if hit else 9.0,)),) for hit in hits)
    return Outcome(tuple(map(str, range(len(hits)))), places, ((),) * len(hits))


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        around = interval(outcome((draw.random(120) < 0.3).tolist()), R1)
        covered += around.low <= 30 <= around.high
    assert 87 <= covered <= 100


def test_equal_methods_do_not_differ() -> None:
    same = outcome([True, False, True, True])
    found = difference(same, same, R1)
    assert (found.interval.value, found.p_value, found.wins, found.losses) == (0, 1, 0, 0)


def test_a_method_that_wins_everywhere_differs() -> None:
    found = difference(outcome([True] * 40), outcome([False] * 30 + [True] * 10), R1)
    assert found.interval.value == pytest.approx(75)
    assert found.interval.low > 50
    assert found.p_value < 0.01
    assert (found.wins, found.losses) == (30, 0)


def test_a_difference_of_one_query_is_not_significant() -> None:
    found = difference(outcome([True] * 20), outcome([True] * 19 + [False]), R1)
    assert found.p_value > 0.5


def test_runs_on_other_queries_are_refused() -> None:
    with pytest.raises(BadInput, match="different queries"):
        difference(outcome([True]), outcome([True, False]), R1)
