from __future__ import annotations

import math

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.datasets import load_dataset
from tapr.evaluate.metrics import (
    AnswerRanks,
    Metric,
    Outcome,
    average_precision,
    metrics,
    ranks_in_list,
    ranks_in_scores,
    summary,
)
from tapr.evaluate.submit import score_predictions
from tests.evaluate.official import official


def test_circo_golden_figures() -> None:
    folder = official("circo")
    dataset = load_dataset("circo", folder, "val")
    outcome = score_predictions(folder / "submission_examples" / "submission_val.json", dataset)
    found = summary(outcome, dataset.protocol.metrics, dataset.protocol.grouped)
    golden = {
        "mAP@5": 0.4861, "mAP@10": 0.5178, "mAP@25": 0.5400, "mAP@50": 0.6020,
        "R@5": 0.9091, "R@10": 0.9091, "R@25": 1.3636, "R@50": 3.6364,
    }  # fmt: skip
    assert {name: round(found[name], 4) for name in golden} == golden
    assert len(found["groups"]) == 9  # semantic aspects


def brute_average_precision(ranked: list[str], right: set[str], k: int) -> float:
    """Written from the formula, place by place, with no shortcut shared with the product."""
    total = 0.0
    for i in range(1, k + 1):
        if i <= len(ranked) and ranked[i - 1] in right:
            hits = len([name for name in ranked[:i] if name in right])
            total += hits / i
    return total / min(len(right), k)


def test_metrics_equal_brute_force_on_made_up_rankings() -> None:
    draw = np.random.default_rng(3)
    names = [f"n{number}" for number in range(40)]
    for _ in range(200):
        scores = draw.integers(0, 12, 40).astype(float)  # many ties
        ranked = [names[place] for place in sorted(range(40), key=lambda place: (-scores[place], place))]
        right = [str(name) for name in draw.choice(names, draw.integers(1, 9), replace=False)]
        positions = np.array([names.index(name) for name in right])
        (by_scores,) = ranks_in_scores(scores[None], positions)
        assert by_scores.right == ranks_in_list(ranked, right).right
        for k in (1, 3, 5, 10, 50):
            assert Metric("mAP", k).value(by_scores) == pytest.approx(brute_average_precision(ranked, set(right), k))
            assert Metric("R", k).value(by_scores) == float(right[0] in ranked[:k])
            assert Metric("Hit", k).value(by_scores) == float(bool(set(right) & set(ranked[:k])))


def test_average_precision_divides_by_the_smaller_of_answers_and_k() -> None:
    assert average_precision((1, 3, math.inf), 5) == pytest.approx((1 + 2 / 3) / 3)
    assert average_precision((1, 2, 3, 4), 2) == pytest.approx(1)


def test_a_random_ranking_is_at_chance() -> None:
    draw = np.random.default_rng(0)
    size, queries = 100, 4000
    places = tuple(tuple(ranks_in_scores(draw.random((1, size)), np.array([7]))) for _ in range(queries))
    outcome = Outcome(tuple(map(str, range(queries))), places, ((),) * queries)
    for k in (1, 10, 50):
        error = 4 * math.sqrt(k / size * (1 - k / size) / queries)
        assert outcome.mean(Metric("R", k)) == pytest.approx(k / size, abs=error)
    expected = sum(1 / rank for rank in range(1, 11)) / size
    assert outcome.mean(Metric("mAP", 10)) == pytest.approx(expected, rel=0.2)


def test_a_picture_that_is_not_in_the_ranking_is_never_found() -> None:
    (places,) = ranks_in_scores(np.array([[0.5, -np.inf, 0.1]]), np.array([1]))
    assert places.target == math.inf
    assert Metric("R", 50).value(places) == 0


def test_ranks_inside_a_subset_count_only_the_subset() -> None:
    scores = np.array([[0.9, 0.8, 0.7, 0.6, 0.5]])
    (places,) = ranks_in_scores(scores, np.array([3]), np.array([2, 3, 4]))
    assert (places.target, places.subset) == (4, 2)
    assert Metric("Rsubset", 1).value(places) == 0
    assert Metric("Rsubset", 2).value(places) == 1


def test_a_macro_mean_weighs_groups_alike() -> None:
    hit, miss = (AnswerRanks((1.0,)),), (AnswerRanks((99.0,)),)
    groups = (("dress",), ("shirt",), ("shirt",), ("shirt",))
    outcome = Outcome(("1", "2", "3", "4"), (hit, miss, miss, hit), groups, macro=True)
    assert outcome.mean(Metric("R", 10)) == pytest.approx((1 + 1 / 3) / 2)
    assert Outcome(outcome.ids, outcome.ranks, groups).mean(Metric("R", 10)) == pytest.approx(0.5)
    assert outcome.by_group(Metric("R", 10)) == {"dress": 1, "shirt": pytest.approx(1 / 3)}


def test_metrics_are_named_and_read_back() -> None:
    assert [str(metric) for metric in metrics("mAP@5", "Rsubset@2")] == ["mAP@5", "Rsubset@2"]
    for wrong in ("mAP", "P@5", "R@0", "R@x"):
        with pytest.raises(BadInput, match="unknown metric"):
            Metric.parse(wrong)
