"""Bounds from summaries: never below the score by the definition, and tight where a summary holds everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery
from tapr.score.definition import probe_scores
from tapr.search.prefilter.summary import Subspaces, Summary
from tapr.types import Float32
from tests.search.banks import clustered_bank, make_query, random_bank, spiked_bank


def local_part(query: CompiledQuery, local_vectors: Float32) -> Float32:
    """By the definition: (N, M, d) -> (N,)"""
    if not len(query.probes):
        return np.zeros(len(local_vectors), np.float32)
    means = probe_scores(query.probes, local_vectors, query.tau)
    return np.asarray(means @ query.weights.astype(np.float64), np.float32)


def summary_of(local_vectors: Float32, directions: int) -> Summary:
    return Summary.of(local_vectors, Subspaces.fitted(local_vectors[:20], directions), directions)


def bound_holds(summary: Summary, query: CompiledQuery, local_vectors: Float32) -> Float32:
    """-> how far above the score the bound is."""
    rows = np.arange(len(local_vectors))
    slack = summary.highest(query, rows) - local_part(query, local_vectors)
    assert slack.min() >= -1e-7  # the bound may be reached
    return np.asarray(slack)


@pytest.mark.parametrize("make", [random_bank, clustered_bank, spiked_bank])
@pytest.mark.parametrize(("count", "dim"), [(1, 8), (2, 3), (9, 64), (49, 32)])
@pytest.mark.parametrize("directions", [1, 5, 64])
def test_no_score_is_above_its_bound(make: object, count: int, dim: int, directions: int) -> None:
    rng = np.random.default_rng(3)
    assert callable(make)
    _, vectors = make(rng, 40, count, dim)
    vectors = vectors.astype(np.float16).astype(np.float32)
    summary = summary_of(vectors, directions)
    for probes in (0, 1, 30):
        for tau in (1e-6, 0.02, 10.0):
            bound_holds(summary, make_query(rng, probes, dim, tau, near=vectors), vectors)
    bound_holds(summary, make_query(rng, 7, dim), vectors)


def test_probes_that_point_along_what_is_left_out() -> None:
    """The worst for a bound: each probe is the rest of one picture's vector itself."""
    rng = np.random.default_rng(4)
    _, vectors = random_bank(rng, 30, 12, 24)
    summary = summary_of(vectors, 2)
    held = summary.shares.astype(np.float32) @ (summary.codes * summary.scales[..., None])
    rests = unit((vectors - held).reshape(-1, 24))
    one = make_query(rng, 1, 24)
    for rest in rests[::7]:
        for sign in (1, -1):
            for weight in (0.6, -0.6):
                query = replace(one, probes=sign * rest[None], weights=np.array([weight], np.float32))
                bound_holds(summary, query, vectors)


def test_remove_only_and_weights_of_zero() -> None:
    rng = np.random.default_rng(5)
    _, vectors = clustered_bank(rng, 50, 9, 32)
    summary = summary_of(vectors, 4)  # as many directions as there are centres
    query = make_query(rng, 6, 32, near=vectors)
    removing = replace(query, weights=-np.abs(query.weights))
    assert bound_holds(summary, removing, vectors).mean() < 0.2
    nothing = replace(query, weights=np.zeros_like(query.weights))
    assert np.abs(bound_holds(summary, nothing, vectors)).max() < 1e-6


def test_one_local_vector_is_known_almost_exactly() -> None:
    rng = np.random.default_rng(6)
    _, vectors = random_bank(rng, 50, 1, 64)
    assert bound_holds(summary_of(vectors, 1), make_query(rng, 5, 64), vectors).max() < 0.02


def test_no_picture_at_all_and_vectors_of_length_0() -> None:
    rng = np.random.default_rng(7)
    _, vectors = random_bank(rng, 20, 6, 16)
    vectors[3], vectors[4, 2] = 0, 0
    summary = summary_of(vectors, 4)
    bound_holds(summary, make_query(rng, 5, 16), vectors)
    assert summary.highest(make_query(rng, 5, 16), np.zeros(0, np.int64)).shape == (0,)


def test_places_that_are_all_alike_or_copies_of_few() -> None:
    """Fewer directions than are kept: those that are missing must do no harm."""
    rng = np.random.default_rng(12)
    few = unit(rng.standard_normal((30, 2, 64)))
    for vectors in (np.repeat(few[:, :1], 12, axis=1), few[:, rng.integers(0, 2, 12)]):
        summary = summary_of(vectors, 8)
        assert np.abs(summary.shares.astype(np.float32)).max() < 1.5
        for query in (make_query(rng, 9, 64), make_query(rng, 9, 64, near=vectors)):
            assert bound_holds(summary, query, vectors).max() < 0.05


def test_some_rows_have_the_bounds_that_they_have_among_all() -> None:
    rng = np.random.default_rng(8)
    _, vectors = random_bank(rng, 600, 4, 16)
    summary, query = summary_of(vectors, 2), make_query(rng, 5, 16)
    some = np.sort(rng.permutation(600)[:300])
    np.testing.assert_allclose(summary.highest(query, some), summary.highest(query, np.arange(600))[some], atol=1e-5)


def test_more_directions_bound_closer() -> None:
    rng = np.random.default_rng(9)
    centres = rng.standard_normal((60, 1, 64))
    vectors = unit(centres + 0.5 * rng.standard_normal((60, 20, 64)))
    query = make_query(rng, 10, 64, near=vectors)
    slack = [bound_holds(summary_of(vectors, directions), query, vectors).mean() for directions in (1, 4, 16, 20)]
    assert slack == sorted(slack, reverse=True)
    assert slack[-1] < slack[0] / 3
