from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.controls import variants
from tapr.evaluate.run import grid, grid_theta, run_variants, scaled_theta
from tapr.evaluate.terms import query_terms
from tapr.evaluate.theta import GRID, Choice, label_free, leave_one_out, operators
from tapr.query.scoring import PAPER, Scoring
from tapr.query.spec import EditSpec, Weights
from tapr.score.compile import PARTS
from tests.evaluate.scenes import random_scene


def test_label_free_scaling_divides_by_each_operators_spread() -> None:
    phi = np.array([[0, 2.0], [0, 4.0], [0, 1.0], [0, 0]])  # spreads 1, 2, .5 and an inactive factor
    choice = label_free([phi], Weights(1, 0.5, 0.5, 0.3))
    assert choice.weights == Weights(1, 0.25, 1, 0.3)
    assert "label-free" in choice.how


def test_an_inactive_factor_does_not_count_in_the_mean_spread() -> None:
    with_remove = np.array([[0, 2.0], [0, 2.0], [0, 2.0], [0, 4.0]])
    without = np.array([[0, 2.0], [0, 2.0], [0, 2.0], [0, 0]])
    assert label_free([with_remove, without], Weights(1, 1, 1, 1)).weights.remove == pytest.approx(0.5)


@pytest.mark.parametrize("scoring", [PAPER, Scoring("fixed")])
def test_a_grid_point_has_the_metric_of_a_run_with_those_weights(scoring: Scoring) -> None:
    experiment = random_scene(scoring=scoring)
    values = grid(experiment)
    for place in (0, 57, len(GRID) - 1):
        (full,) = run_variants(variants(()), experiment, Choice(GRID[place], "grid"))
        assert values[place] == pytest.approx(100 * full.outcome.mean(experiment.dataset.protocol.main))
    choice, again = grid_theta(experiment)
    assert values == again
    assert values[GRID.index(choice.weights)] == max(values)
    assert "random val" in choice.how


def test_weights_are_never_chosen_on_a_test_split() -> None:
    with pytest.raises(BadInput, match="random test is a test split"):
        grid(random_scene(tunable=False))


def test_scaling_without_labels_is_allowed_anywhere() -> None:
    assert scaled_theta(random_scene(tunable=False)).weights.target == 1


def test_leave_one_out_uses_only_the_other_datasets() -> None:
    good_on_a, good_on_b = np.zeros(len(GRID)), np.zeros(len(GRID))
    good_on_a[3], good_on_b[8] = 50, 1
    grids = {"A": good_on_a.tolist(), "B": good_on_b.tolist()}
    assert leave_one_out(grids, "A").weights == GRID[8]
    assert leave_one_out(grids, "B").weights == GRID[3]
    with pytest.raises(BadInput, match="leaves no run"):
        leave_one_out({"A": good_on_a.tolist()}, "A")


def test_operators_use_the_weights_of_atoms() -> None:
    experiment = random_scene()
    terms = dict(query_terms(experiment.dataset.queries, experiment.records, experiment.features[0], (0.02,)))[0]
    spec = EditSpec("one", ["b"], ["c", "d"], ["e"], atom_weights={"c": 3})
    weighted = replace(terms, spec=spec)
    phi = operators(weighted, 0.02)
    rows = dict(zip(terms.keys, terms.rows[0.02], strict=True))
    c, d = rows["preserve", "c", "local"], rows["preserve", "d", "local"]
    parts = rows["continuity", PARTS, "local"]
    np.testing.assert_allclose(phi[2], (0.75 * c + 0.25 * d + parts) / 2, atol=1e-6)
    np.testing.assert_allclose(phi[3], -rows["remove", "e", "local"], atol=1e-6)
