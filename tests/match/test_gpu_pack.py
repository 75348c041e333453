"""Probes as the device reads them: what is lost is known, and is each query's own affair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.gallery.codec import rotate
from tapr.match.base import CODES, VECTORS
from tapr.query import CompiledQuery
from tests.match.banks import make_query

pytest.importorskip("torch", reason="packing needs torch")
from tapr.match.gpu_pack import Probes, groups_of, pack, probes_of


def query_of(*probes: np.ndarray, tau: float = 0.02) -> CompiledQuery:
    vectors = unit(np.array(probes))
    weights = np.full(len(vectors), 1 / len(vectors), np.float32)
    some = make_query(np.random.default_rng(0), len(vectors), vectors.shape[1], tau)
    return replace(some, probes=vectors, weights=weights)


def read(probes: Probes) -> np.ndarray:
    """The vectors that the kernels see, (n, d)."""
    parts = probes.parts.astype(np.float64)
    sums = probes.base * parts[0] + parts[1] if probes.base else parts.sum(axis=0)
    return np.asarray(sums * probes.steps[:, None])


def test_a_probe_with_one_large_component_needs_one_part_only() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(8, 512)) * 0.03
    vectors[:, 133] = rng.uniform(0.6, 0.85, 8)  # as in real CLIP text vectors
    probes = probes_of(query_of(*vectors), VECTORS)
    assert len(probes.parts) == 1
    assert probes.steps.tolist() == pytest.approx(np.abs(unit(vectors)).max(axis=1).tolist())


def test_probes_that_fp16_cannot_hold_come_in_two_parts() -> None:
    query = query_of(np.array([0.58, 0.81464, 0, 0]))
    probes = probes_of(query, VECTORS)
    assert len(probes.parts) == 2
    np.testing.assert_allclose(read(probes), query.probes, atol=1e-7)
    assert np.abs(probes.parts[0] * probes.steps[:, None] - query.probes).max() > 1e-6


@pytest.mark.parametrize("dim", [32, 768, 1280, 4096])
def test_int8_digits_restore_the_rotated_probe_and_cannot_overflow(dim: int) -> None:
    query = query_of(np.random.default_rng(dim).normal(size=dim))
    probes = probes_of(query, CODES)
    np.testing.assert_allclose(read(probes), rotate(query.probes), rtol=0, atol=0.51 * probes.steps[0])
    assert dim * 127 * (127 * probes.base + probes.base // 2) < 2**31


@pytest.mark.parametrize("level", [CODES, VECTORS], ids=["codes", "vectors"])
@pytest.mark.parametrize("dim", [4, 37, 512])
def test_what_is_lost_is_at_most_what_is_said(level: object, dim: int) -> None:
    rng = np.random.default_rng(dim)
    for spike in (0, 3):
        vectors = rng.normal(size=(9, dim))
        vectors[:, 1] += spike
        query = query_of(*vectors)
        query = replace(query, weights=np.where(np.arange(9) == 4, 0, query.weights))
        probes = probes_of(query, CODES if level == CODES else VECTORS)
        kept = np.flatnonzero(query.weights)
        exact = rotate(query.probes) if level == CODES else query.probes.astype(np.float64)
        lost = np.linalg.norm(exact[kept] - read(probes), axis=1)
        assert len(probes) == len(kept)
        assert probes.lost.shape == (9,)
        assert (lost <= probes.lost[kept]).all()
        assert (probes.lost < 1e-3).all()


def test_a_query_is_read_in_its_own_manner_whatever_its_company() -> None:
    """One that needs two parts and one of a sharp tau: each goes with its like, and none is read otherwise for them."""
    rng = np.random.default_rng(3)
    plain = [make_query(rng, 20, 512) for _ in range(3)]
    sharp = make_query(rng, 20, 512, tau=0.005)
    sparse = query_of(np.eye(512)[7] + np.eye(512)[1] * 1228.5 / 2048)  # half way between two fp16 numbers
    queries = [plain[0], sharp, plain[1], sparse, plain[2]]
    groups = list(groups_of([probes_of(query, VECTORS) for query in queries]))
    assert sorted(groups) == [[0, 2, 4], [1], [3]]
    assert pack([probes_of(sharp, VECTORS)], 512, "cpu").shifted
    assert not pack([probes_of(plain[0], VECTORS)], 512, "cpu").shifted


def test_queries_are_cut_into_sweeps_that_fit() -> None:
    rng = np.random.default_rng(4)
    many = [probes_of(make_query(rng, 1, 64), CODES) for _ in range(130)]
    assert [len(group) for group in groups_of(many)] == [64, 64, 2]
    long = [probes_of(make_query(rng, 1000, 64), CODES) for _ in range(5)]
    assert [len(group) for group in groups_of(long)] == [2, 2, 1]
