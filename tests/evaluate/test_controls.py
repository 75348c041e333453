from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapr.encoders.base import Evidence
from tapr.errors import BadInput
from tapr.evaluate.controls import CONTROLS, reassigned, shared_read, variants, weigh, without
from tapr.evaluate.metrics import Metric
from tapr.evaluate.run import Scene, run_controls, run_method
from tapr.evaluate.terms import GLOBAL, QueryTerms, query_terms
from tapr.evaluate.theta import FIXED
from tapr.match.reference import late_interaction, score
from tapr.methods import make_method
from tapr.query import REFERENCE, compile_query
from tapr.spec import DEFAULT_WEIGHTS, FACTORS, Weights
from tests.evaluate.scenes import random_scene

TAU = 0.02


def terms_of(scene: Scene) -> list[QueryTerms]:
    found = dict(query_terms(scene.dataset.queries, scene.records, scene.features[0], (TAU,)))
    return [found[place] for place in range(len(found))]


def test_full_tapr_from_terms_is_what_a_search_computes() -> None:
    scene = random_scene()
    (features,) = scene.features
    block = features.bank.gather(features.bank.rows)
    for theta in (DEFAULT_WEIGHTS, Weights(0.2, 1, 2, 3)):
        for query, terms in zip(scene.dataset.queries, terms_of(scene), strict=True):
            compiled = compile_query(terms.spec, features.references([query.reference]), features.encoder, theta, TAU)
            expected = score(compiled, block.global_vectors, block.decoded())
            np.testing.assert_allclose(weigh(terms, theta) @ terms.rows[TAU], expected, atol=1e-4)


def test_the_control_called_full_ranks_as_the_method_does() -> None:
    scene = random_scene()
    (full,) = run_controls((), scene, FIXED)
    method = run_method(make_method("tapr"), scene)
    assert method.outcome is not None
    assert full.outcome.places == method.outcome.places


def test_global_evidence_is_the_same_score_with_one_vector_a_picture() -> None:
    scene = random_scene()
    (features,) = scene.features
    for query, terms in zip(scene.dataset.queries, terms_of(scene), strict=True):
        reference = features.references([query.reference])
        single = Evidence(reference.global_vectors, reference.global_vectors[:, None])
        compiled = compile_query(terms.spec, single, features.encoder, DEFAULT_WEIGHTS, TAU)
        expected = score(compiled, features.global_vectors, features.global_vectors[:, None])
        np.testing.assert_allclose(weigh(terms, DEFAULT_WEIGHTS) @ terms.rows[GLOBAL], expected, atol=1e-4)


@pytest.mark.parametrize("factor", FACTORS)
def test_without_a_factor_its_terms_weigh_nothing(factor: str) -> None:
    scene = random_scene()
    (features,) = scene.features
    block = features.bank.gather(features.bank.rows)
    for query, terms in zip(scene.dataset.queries, terms_of(scene), strict=True):
        compiled = compile_query(terms.spec, features.references([query.reference]), features.encoder, None, TAU)
        expected = score(compiled.keep(lambda term: term.factor != factor), block.global_vectors, block.decoded())
        (row,) = without(factor)(terms, DEFAULT_WEIGHTS)  # type: ignore[arg-type]
        np.testing.assert_allclose(row @ terms.rows[TAU], expected, atol=1e-4)


def test_without_continuity_only_that_half_is_dropped() -> None:
    scene = random_scene()
    (features,) = scene.features
    block = features.bank.gather(features.bank.rows)
    variant = variants(["continuity"])[1]
    for query, terms in zip(scene.dataset.queries, terms_of(scene), strict=True):
        compiled = compile_query(terms.spec, features.references([query.reference]), features.encoder, None, TAU)
        expected = score(compiled.keep(lambda term: term.text != REFERENCE), block.global_vectors, block.decoded())
        (row,) = variant.weigh(terms, DEFAULT_WEIGHTS)
        np.testing.assert_allclose(row @ terms.rows[TAU], expected, atol=1e-4)


def test_remove_as_reward_flips_one_sign() -> None:
    variant = variants(["reward"])[1]
    terms = terms_of(random_scene())[0]
    (row,), full = variant.weigh(terms, DEFAULT_WEIGHTS), weigh(terms, DEFAULT_WEIGHTS)
    np.testing.assert_array_equal(row[:-2], full[:-2])
    assert row[-2] == -full[-2] > 0  # the remove atom
    assert row[-1] == full[-1]  # continuity


def test_the_shared_read_is_one_unsigned_late_interaction() -> None:
    scene = random_scene()
    (features,) = scene.features
    local = features.bank.gather(features.bank.rows).decoded()
    terms = terms_of(scene)[0]
    spec = terms.spec
    atoms = features.atoms([*spec.add, *spec.preserve, *spec.remove])
    theta = Weights(1, 0.5, 0.4, 0.3)
    expected = features.global_vectors @ features.texts([spec.target])[0]
    expected = expected + 1.2 * late_interaction(atoms, local, TAU)
    np.testing.assert_allclose(shared_read(terms, theta) @ terms.rows[TAU], expected, atol=1e-4)


def test_reassignment_moves_atoms_between_factors_and_keeps_the_places() -> None:
    terms = terms_of(random_scene())[0]  # add b, preserve c d, remove e
    full = weigh(terms, DEFAULT_WEIGHTS)
    rows = reassigned(terms, DEFAULT_WEIGHTS)
    assert rows
    for row in rows:
        assert sorted(row[1:-1]) == sorted(full[1:-1])
        assert not np.array_equal(row, full)
        assert (row[0], row[-1]) == (full[0], full[-1])
    assert len({tuple(row) for row in rows}) == len(rows) <= 10


def test_reassignment_of_atoms_of_one_factor_changes_nothing() -> None:
    terms = terms_of(random_scene())[2]  # preserve h alone
    (row,) = reassigned(terms, DEFAULT_WEIGHTS)
    np.testing.assert_array_equal(row, weigh(terms, DEFAULT_WEIGHTS))


def test_every_control_runs_and_the_sweeps_have_their_points() -> None:
    scene = random_scene()
    results = run_controls(CONTROLS, scene, FIXED)
    by_control: dict[str, list[str]] = {}
    for result in results:
        by_control.setdefault(result.control, []).append(result.name)
    counts = {name: len(found) for name, found in by_control.items()}
    assert counts == {
        "": 1, "matched": 3, "factors": 4, "reassign": 1, "continuity": 1, "reward": 1, "tau": 4, "theta": 16,
        "reference": 2,
    }  # fmt: skip
    by_name = {result.name: result.outcome for result in results}
    assert by_name["reference removed"].places == by_name["Full TAPR"].places
    assert by_name["reference kept"].places != by_name["Full TAPR"].places


def test_keeping_the_reference_is_the_protocols_choice() -> None:
    kept = run_controls(("reference",), random_scene(keep_reference=True), FIXED)
    assert kept[0].outcome.places == kept[1].outcome.places
    metric = Metric("mAP", 10)
    assert kept[0].outcome.mean(metric) <= kept[2].outcome.mean(metric)


def test_scaled_theta_is_theta_with_one_factor_scaled() -> None:
    scene = random_scene()
    scaled = {result.name: result.outcome.places for result in run_controls(("theta",), scene, FIXED)}
    choice = replace(FIXED, weights=replace(DEFAULT_WEIGHTS, preserve=DEFAULT_WEIGHTS.preserve * 1.25))
    (direct,) = run_controls((), scene, choice)
    assert scaled["Preserve x1.25"] == direct.outcome.places


def test_unknown_controls_are_refused() -> None:
    with pytest.raises(BadInput, match="unknown control 'everything'"):
        variants(["everything"])
