from __future__ import annotations

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.evaluate.controls import TAUS
from tapr.evaluate.terms import GLOBAL, query_terms, soft_means
from tapr.score.definition import late_interaction, probe_scores
from tests.evaluate.scenes import random_scene


def test_soft_means_equal_the_definition_at_every_tau() -> None:
    draw = np.random.default_rng(0)
    probes, locals_ = unit(draw.standard_normal((7, 16))), unit(draw.standard_normal((5, 9, 16)))
    out = np.empty((5, len(TAUS) + 1, 7), np.float32)
    taus = (*TAUS, 0.03)  # the last is not half of another: it has an exponential of its own
    soft_means(locals_ @ probes.T, taus, out)  # (5, 9, 7)
    for place, tau in enumerate(taus):
        np.testing.assert_allclose(out[:, place], probe_scores(probes, locals_, tau), atol=1e-5)


def test_terms_are_the_target_the_atoms_and_continuity() -> None:
    experiment = random_scene()
    (features,) = experiment.features
    queries = experiment.dataset.queries
    seen = set()
    for place, terms in query_terms(queries, experiment.records, features, (0.02, 0.04)):
        query = queries[place]
        seen.add(place)
        spec = experiment.records.spec(query.id)
        block = features.bank.gather(features.bank.rows)
        local = block.decoded().astype(np.float64)
        reference = features.references([query.reference])
        atoms = features.atoms([*spec.add, *spec.preserve, *spec.remove])
        for tau in (0.02, 0.04):
            rows = terms.rows[tau]
            np.testing.assert_allclose(rows[0], features.global_vectors @ features.texts([spec.target])[0], atol=1e-4)
            np.testing.assert_allclose(rows[1:-2], probe_scores(atoms, local, tau).T, atol=1e-4)
            np.testing.assert_allclose(rows[-2], features.global_vectors @ reference.global_vectors[0], atol=1e-4)
            np.testing.assert_allclose(rows[-1], late_interaction(reference.local_vectors[0], local, tau), atol=1e-4)
        flat = terms.rows[GLOBAL]
        np.testing.assert_allclose(flat[-1], features.global_vectors @ reference.global_vectors[0], atol=1e-4)
        np.testing.assert_allclose(flat[1:-2], atoms @ features.global_vectors.T, atol=1e-4)
    assert seen == set(range(len(queries)))


def test_small_memory_gives_the_same_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = random_scene()
    (features,) = experiment.features
    whole = {
        place: terms.rows[0.02]
        for place, terms in query_terms(experiment.dataset.queries, experiment.records, features, (0.02,))
    }
    monkeypatch.setattr("tapr.evaluate.terms._BUDGET", 1)
    for place, terms in query_terms(experiment.dataset.queries, experiment.records, features, (0.02,)):
        np.testing.assert_allclose(terms.rows[0.02], whole[place], atol=1e-5)
