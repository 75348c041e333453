from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.base import Evidence
from tapr.errors import BadInput
from tapr.evaluate.controls import CONTROLS, Change, full, reassigned, shared_read, variants, without
from tapr.evaluate.metrics import Metric
from tapr.evaluate.run import Experiment, run_method, run_shared, run_variants
from tapr.evaluate.terms import GLOBAL, QueryTerms, query_terms
from tapr.evaluate.theta import FIXED
from tapr.methods import make_method
from tapr.query.scoring import PAPER, Scoring
from tapr.query.spec import ATOM_FACTORS, DEFAULT_WEIGHTS, FACTORS, EditSpec, Weights, WordFactor
from tapr.score.compile import CompiledQuery, EncodedSpec, compile_query, weigh
from tapr.score.definition import late_interaction, score
from tests.evaluate.scenes import random_scene

TAU = 0.02
SCORINGS = (PAPER, Scoring("fixed"), Scoring("adaptive"), Scoring("fixed", 0.7, "global"))


def terms_of(experiment: Experiment) -> list[QueryTerms]:
    found = dict(
        query_terms(experiment.dataset.queries, experiment.records, experiment.features[0], (TAU,), experiment.scoring)
    )
    return [found[place] for place in range(len(found))]


def row_of(terms: QueryTerms, change: Change, theta: Weights = DEFAULT_WEIGHTS) -> NDArray[np.float64]:
    (parts,) = change(weigh(terms.spec, True, theta, terms.continuity), theta)
    return terms.weights(parts)


def compiled(experiment: Experiment, place: int, terms: QueryTerms, theta: Weights | None = None) -> CompiledQuery:
    reference = experiment.features[0].references([experiment.dataset.queries[place].reference])
    return compile_query(terms.spec, reference, experiment.features[0].encoder, theta, TAU, terms.continuity)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_full_tapr_from_terms_is_what_a_search_computes(scoring: Scoring) -> None:
    experiment = random_scene(scoring=scoring)
    block = experiment.features[0].bank.gather(experiment.features[0].bank.rows)
    for theta in (DEFAULT_WEIGHTS, Weights(0.2, 1, 2, 3)):
        for place, terms in enumerate(terms_of(experiment)):
            expected = score(compiled(experiment, place, terms, theta), block.global_vectors, block.decoded())
            np.testing.assert_allclose(row_of(terms, full, theta) @ terms.rows[TAU], expected, atol=1e-4)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_the_control_called_full_ranks_as_the_method_does(scoring: Scoring) -> None:
    experiment = random_scene(scoring=scoring)
    (control,) = run_variants(variants(()), experiment, FIXED)
    method = run_method(make_method("tapr", scoring=scoring), experiment)
    assert method.outcome is not None
    assert control.outcome.ranks == method.outcome.ranks


@pytest.mark.parametrize("scoring", SCORINGS[:2])
def test_without_preserves_atoms_the_score_is_that_of_specs_that_name_none(scoring: Scoring) -> None:
    scene = random_scene(scoring=scoring)
    block = scene.features[0].bank.gather(scene.features[0].bank.rows)
    _, variant = variants(["preserve"], TAU)
    for place, terms in enumerate(terms_of(scene)):
        (parts,) = variant.weigh(terms.spec, DEFAULT_WEIGHTS, terms.continuity)
        bare = replace(terms, spec=replace(terms.spec, preserve=()))
        expected = score(compiled(scene, place, bare), block.global_vectors, block.decoded())
        np.testing.assert_allclose(terms.weights(parts) @ terms.rows[TAU], expected, atol=1e-4)


def test_global_evidence_is_the_same_score_with_one_vector_per_picture() -> None:
    experiment = random_scene()
    (features,) = experiment.features
    for query, terms in zip(experiment.dataset.queries, terms_of(experiment), strict=True):
        reference = features.references([query.reference])
        single = Evidence(reference.global_vectors, reference.global_vectors[:, None])
        one = compile_query(terms.spec, single, features.encoder, DEFAULT_WEIGHTS, TAU)
        expected = score(one, features.global_vectors, features.global_vectors[:, None])
        np.testing.assert_allclose(row_of(terms, full) @ terms.rows[GLOBAL], expected, atol=1e-4)


@pytest.mark.parametrize("scoring", SCORINGS[:2])
@pytest.mark.parametrize("factor", FACTORS)
def test_leaving_out_a_factor_sets_its_weights_to_zero(factor: WordFactor, scoring: Scoring) -> None:
    experiment = random_scene(scoring=scoring)
    block = experiment.features[0].bank.gather(experiment.features[0].bank.rows)
    gone = ("preserve", "continuity") if factor == "preserve" and scoring == PAPER else (factor,)
    for place, terms in enumerate(terms_of(experiment)):
        kept = compiled(experiment, place, terms).keep(lambda term: term.factor not in gone)
        expected = score(kept, block.global_vectors, block.decoded())
        np.testing.assert_allclose(row_of(terms, without(factor)) @ terms.rows[TAU], expected, atol=1e-4)


def test_leaving_out_continuity_drops_only_its_terms() -> None:
    experiment = random_scene()
    block = experiment.features[0].bank.gather(experiment.features[0].bank.rows)
    variant = variants(["continuity"])[1]
    for place, terms in enumerate(terms_of(experiment)):
        kept = compiled(experiment, place, terms).keep(lambda term: term.factor != "continuity")
        expected = score(kept, block.global_vectors, block.decoded())
        np.testing.assert_allclose(row_of(terms, variant.change) @ terms.rows[TAU], expected, atol=1e-4)


def test_remove_as_reward_flips_one_sign() -> None:
    terms = terms_of(random_scene())[0]
    row, whole = row_of(terms, variants(["reward"])[1].change), row_of(terms, full)
    removed = np.array([key[0] == "remove" for key in terms.keys])
    np.testing.assert_array_equal(row, np.where(removed, -whole, whole))
    assert (row[removed] > 0).all()


def test_the_shared_read_is_one_unsigned_late_interaction() -> None:
    experiment = random_scene()
    (features,) = experiment.features
    local = features.bank.gather(features.bank.rows).decoded()
    terms = terms_of(experiment)[0]
    spec = terms.spec
    atoms = features.atoms([*spec.add, *spec.preserve, *spec.remove])
    expected = features.global_vectors @ features.texts([spec.target])[0]
    expected = expected + 1.2 * late_interaction(atoms, local, TAU)
    row = row_of(terms, shared_read, Weights(1, 0.5, 0.4, 0.3))
    np.testing.assert_allclose(row @ terms.rows[TAU], expected, atol=1e-4)


def test_reassignment_moves_atoms_between_factors_and_keeps_the_places() -> None:
    terms = terms_of(random_scene())[0]  # add b, preserve c d, remove e
    whole = row_of(terms, full)
    weighed = weigh(terms.spec, True, DEFAULT_WEIGHTS, terms.continuity)
    rows = [terms.weights(parts) for parts in reassigned(weighed, DEFAULT_WEIGHTS)]
    atoms = np.array([key[0] in ATOM_FACTORS for key in terms.keys])
    assert rows
    for row in rows:
        assert sorted(row[atoms]) == sorted(whole[atoms])
        assert not np.array_equal(row, whole)
        np.testing.assert_array_equal(row[~atoms], whole[~atoms])
    assert len({tuple(row) for row in rows}) == len(rows) <= 10


def test_reassignment_of_atoms_of_one_factor_changes_nothing() -> None:
    terms = terms_of(random_scene())[2]  # preserve h alone
    np.testing.assert_array_equal(row_of(terms, reassigned), row_of(terms, full))


def test_atoms_with_total_weight_zero_are_refused_in_controls() -> None:
    spec = EditSpec("one", ["b"], atom_weights={"b": 0})
    for variant in variants(CONTROLS):
        with pytest.raises(BadInput, match="every atom of add has weight 0"):
            variant.weigh(spec, DEFAULT_WEIGHTS, None)


def test_every_control_runs_and_the_sweeps_have_their_points() -> None:
    experiment = random_scene()
    results = run_variants(variants(CONTROLS), experiment, FIXED)
    by_control: dict[str, list[str]] = {}
    for result in results:
        by_control.setdefault(result.control, []).append(result.name)
    counts = {name: len(found) for name, found in by_control.items()}
    assert counts == {
        "": 1, "matched": 3, "factors": 4, "reassign": 1, "continuity": 1, "preserve": 1, "reward": 1,
        "tau": 4, "theta": 16, "reference": 2,
    }  # fmt: skip
    by_name = {result.name: result.outcome for result in results}
    assert by_name["reference removed"].ranks == by_name["Full TAPR"].ranks
    assert by_name["reference kept"].ranks != by_name["Full TAPR"].ranks


def test_the_protocol_decides_whether_the_reference_is_ranked() -> None:
    kept = run_variants(variants(("reference",)), random_scene(keep_reference=True), FIXED)
    assert kept[0].outcome.ranks == kept[1].outcome.ranks
    metric = Metric("mAP", 10)
    assert kept[0].outcome.mean(metric) <= kept[2].outcome.mean(metric)


def test_scaled_theta_is_theta_with_one_factor_scaled() -> None:
    experiment = random_scene()
    scaled = {result.name: result.outcome.ranks for result in run_variants(variants(("theta",)), experiment, FIXED)}
    choice = replace(FIXED, weights=replace(DEFAULT_WEIGHTS, preserve=DEFAULT_WEIGHTS.preserve * 1.25))
    (direct,) = run_variants(variants(()), experiment, choice)
    assert scaled["Preserve x1.25"] == direct.outcome.ranks


def test_unknown_controls_are_refused() -> None:
    with pytest.raises(BadInput, match="unknown control 'everything'"):
        variants(["everything"])


@pytest.mark.parametrize("scoring", SCORINGS[:2])
def test_every_control_is_a_compiled_query_that_a_kernel_could_score(scoring: Scoring) -> None:
    """What a control makes of a query, with its vectors, scores by the definition as the evaluation's product does."""
    experiment = random_scene(scoring=scoring)
    (features,) = experiment.features
    block = features.bank.gather(features.bank.rows)
    asked = [variant for variant in variants(CONTROLS, TAU) if variant.tau == TAU]
    assert {variant.control for variant in asked} == {*CONTROLS, ""} - {"tau"}
    for place, terms in enumerate(terms_of(experiment)):
        reference = features.references([experiment.dataset.queries[place].reference])
        encoded = EncodedSpec.of(terms.spec, reference, features.encoder)
        for variant in asked:
            for parts in variant.weigh(terms.spec, DEFAULT_WEIGHTS, terms.continuity):
                query = encoded.assemble([part for part in parts if part.weight], TAU)
                expected = score(query, block.global_vectors, block.decoded())
                np.testing.assert_allclose(terms.weights(parts) @ terms.rows[TAU], expected, atol=1e-4)


@pytest.mark.parametrize("both", [False, True])
def test_running_methods_in_one_pass_gives_the_same_results(both: bool) -> None:
    pytest.importorskip("tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError)
    experiment = random_scene(scoring=Scoring("fixed"))
    methods = [make_method(name) for name in ("maxsim", "tapr-paper", "tapr")]
    together, controls = run_shared(methods, variants(CONTROLS), experiment, FIXED, both=both)
    for method, found in zip(methods, together, strict=True):
        alone = run_method(method, experiment, both)
        assert alone.outcome is not None
        assert found.outcome is not None
        assert (found.top, found.subset, found.outcome.ranks) == (alone.top, alone.subset, alone.outcome.ranks)
        if both:
            assert found.flipped is not None
            assert alone.flipped is not None
            assert found.flipped.ranks == alone.flipped.ranks
    for control, expected in zip(controls, run_variants(variants(CONTROLS), experiment, FIXED), strict=True):
        assert (control.name, control.outcome.ranks) == (expected.name, expected.outcome.ranks)
