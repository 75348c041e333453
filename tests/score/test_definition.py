import math

import numpy as np
import pytest

from tapr.score.compile import CompiledQuery, Term
from tapr.score.definition import heat_maps, late_interaction, probe_scores, score, term_scores


def test_late_interaction_by_hand() -> None:
    """Two locals at dot products 1 and 0 with tau 1: (e * 1 + 1 * 0) / (e + 1)."""
    probe, locals_ = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert late_interaction(probe, locals_, tau=1.0) == pytest.approx(math.e / (math.e + 1), abs=1e-12)


def test_a_small_tau_picks_the_best_and_a_large_one_the_mean() -> None:
    probe, locals_ = np.array([[1.0, 0.0]]), np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    assert late_interaction(probe, locals_, tau=1e-4) == pytest.approx(1)
    assert late_interaction(probe, locals_, tau=1e6) == pytest.approx(1.6 / 3, abs=1e-5)


def test_one_local_vector_is_a_plain_dot_product() -> None:
    rng = np.random.default_rng(0)
    probes, one = rng.normal(size=(5, 8)), rng.normal(size=(3, 1, 8))
    assert np.allclose(probe_scores(probes, one, 0.02), np.einsum("nd,bmd->bn", probes, one))


def test_extreme_dot_products_do_not_overflow() -> None:
    assert late_interaction(np.array([[100.0]]), np.array([[100.0], [-100.0]]), 0.001) == 10000


def test_no_probe_is_an_error_because_an_empty_factor_is_inactive() -> None:
    with pytest.raises(ValueError, match="inactive"):
        late_interaction(np.zeros((0, 4)), np.zeros((2, 4)))


def test_terms_sum_to_the_score_and_heat_to_the_terms() -> None:
    rng = np.random.default_rng(1)
    terms = (
        Term("target", "t", "global", 0, 1), Term("continuity", "w", "global", 1, 2),
        Term("add", "a", "local", 0, 2), Term("remove", "r", "local", 2, 3),
    )  # fmt: skip
    query = CompiledQuery(
        rng.normal(size=(2, 6)).astype(np.float32), np.array([0.4, 0.2], np.float32),
        rng.normal(size=(3, 6)).astype(np.float32),
        np.array([0.1, 0.2, -0.3], np.float32), terms,
    )  # fmt: skip
    v0, v = rng.normal(size=(4, 6)), rng.normal(size=(4, 5, 6))
    parts = term_scores(query, v0, v)
    assert np.allclose(parts.sum(axis=1), score(query, v0, v))
    assert np.allclose(heat_maps(query, v[2]).sum(axis=1)[2:], parts[2, 2:])
    assert not heat_maps(query, v[2])[:2].any()  # they read the global vector
    assert np.allclose(parts[:, :2].sum(axis=1), query.target_weight * (v0 @ query.target), atol=1e-6)  # folded
