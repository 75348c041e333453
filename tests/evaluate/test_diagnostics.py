from __future__ import annotations

import math

import pytest

from tapr.evaluate.diagnostics import solved_alone, solved_alone_sentences
from tapr.evaluate.metrics import AnswerRanks, Metric, Outcome


def outcome(*ranks: tuple[float, ...]) -> Outcome:
    ids = tuple(str(number) for number in range(len(ranks)))
    return Outcome(ids, tuple((AnswerRanks(found),) for found in ranks), ((),) * len(ranks))


def test_a_query_is_solved_by_any_right_answer_of_either_ranking() -> None:
    image = outcome((1,), (6, 5), (2,), (math.inf,))
    edit = outcome((1,), (9, 1), (40,), (11,))
    one, five = solved_alone(image, edit, Metric("mAP", 5))
    assert one == {"k": 1, "image": 25, "edit": 50, "either": 50}
    assert five == {"k": 5, "image": 75, "edit": 50, "either": 75}


def test_the_main_metric_at_one_needs_one_row() -> None:
    assert [row["k"] for row in solved_alone(outcome((1,)), outcome((2,)), Metric("R", 1))] == [1]


@pytest.mark.parametrize(("either", "said"), [(49.9, False), (50.0, True)])
def test_a_benchmark_that_one_modality_solves_gets_a_warning(either: float, said: bool) -> None:
    rows = [
        {"k": 1, "image": 10.0, "edit": 60.0, "either": 70.0},
        {"k": 10, "image": 20.0, "edit": 30.04, "either": either},
    ]
    text = " ".join(solved_alone_sentences(rows))
    assert "in the top 10 image only 20.0 %, edit only 30.0 %, either" in text
    assert ("suffices for most" in text) is said
    assert solved_alone_sentences(()) == ()
