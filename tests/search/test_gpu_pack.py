"""Probes as the device reads them: what is lost is known, and is each query's own affair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import COARSE_CODES, CODES, VECTORS, Level
from tapr.store.codec import rotate
from tests.search.banks import make_query
from tests.search.interpreted import InterpretedKernel

pytest.importorskip("torch", reason="packing needs torch")
pytest.importorskip("triton", minversion="3.9", reason="older interpreters fail with NumPy 2.4")
from tapr.search.kernels.gpu_pack import digit_base, groups_of, probes_of

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def kernel() -> Iterator[InterpretedKernel]:
    with InterpretedKernel() as made:
        yield made


def query_of(*probes: np.ndarray, tau: float = 0.02) -> CompiledQuery:
    vectors = unit(np.array(probes))
    weights = np.full(len(vectors), 1 / len(vectors), np.float32)
    some = make_query(np.random.default_rng(0), len(vectors), vectors.shape[1], tau)
    return replace(some, probes=vectors, weights=weights)


def packed(kernel: InterpretedKernel, query: CompiledQuery, level: Level) -> tuple[SimpleNamespace, NDArray[Any]]:
    """The query alone on the device, and what it lost there."""
    ((_, arrays, (lost,)),) = kernel.packed([[query]], level, -(-query.dim // 16) * 16)
    return SimpleNamespace(**arrays), lost


def read(one: SimpleNamespace, dim: int) -> NDArray[np.float64]:
    """The vectors that the kernels see, (n, d)."""
    found = []
    for row in range(one.count):
        tile, inside = divmod(row, one.first + one.rest)
        place = tile * one.pieces * (one.first + one.rest) + inside
        place, apart = (place, one.first) if inside < one.first else (place + (one.pieces - 1) * one.first, one.rest)
        parts = [one.parts[place + piece * apart, :dim].astype(np.float64) for piece in range(one.pieces)]
        whole = one.base * parts[0] + parts[1] if one.base and one.pieces == 2 else sum(parts)
        found.append(whole * one.steps[row])
    return np.array(found).reshape(-1, dim)


def test_a_probe_with_one_large_component_needs_one_part_only(kernel: InterpretedKernel) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(8, 512)) * 0.03
    vectors[:, 133] = rng.uniform(0.6, 0.85, 8)  # as in real CLIP text vectors
    one, _ = packed(kernel, query_of(*vectors), VECTORS)
    assert one.pieces == 1
    assert one.steps[:8].tolist() == pytest.approx(np.abs(unit(vectors)).max(axis=1).tolist())


def test_probes_that_fp16_cannot_hold_come_in_two_parts(kernel: InterpretedKernel) -> None:
    query = query_of(np.array([0.58, 0.81464, 0, 0]))
    one, _ = packed(kernel, query, VECTORS)
    assert one.pieces == 2
    np.testing.assert_allclose(read(one, 4), query.probes, atol=1e-7)
    assert np.abs(one.parts[0, :4] * one.steps[0] - query.probes).max() > 1e-6


@pytest.mark.parametrize("probes", [1, 72, 90, 150])
def test_padding_of_probes_is_zero(kernel: InterpretedKernel, probes: int) -> None:
    query = make_query(np.random.default_rng(probes), probes, 37)
    for level in (CODES, COARSE_CODES, VECTORS):
        one, _ = packed(kernel, query, level)
        assert len(one.parts) == one.pieces * len(one.weights)
        assert not one.parts[:, 37:].any()
        assert not one.weights[probes:].any()
        assert np.count_nonzero(np.abs(one.parts.astype(np.float32)).sum(axis=1)) == one.pieces * probes
        exact = query.probes if level == VECTORS else rotate(query.probes)
        np.testing.assert_allclose(read(one, 37), exact, rtol=0, atol=0.01 if level.coarse else 1e-3)


@pytest.mark.parametrize("dim", [32, 200])
def test_int8_digits_restore_the_rotated_probe(kernel: InterpretedKernel, dim: int) -> None:
    query = query_of(np.random.default_rng(dim).normal(size=dim))
    one, _ = packed(kernel, query, CODES)
    np.testing.assert_allclose(read(one, dim), rotate(query.probes), rtol=0, atol=0.51 * one.steps[0])


@pytest.mark.parametrize("dim", [32, 768, 1280, 4096])
def test_no_sum_of_digits_and_codes_overflows(dim: int) -> None:
    base = digit_base(dim)
    assert base & (base - 1) == 0
    assert dim * 127 * (127 * base + base // 2) < 2**31


@pytest.mark.parametrize("level", [CODES, COARSE_CODES, VECTORS], ids=["codes", "one digit", "vectors"])
@pytest.mark.parametrize("dim", [4, 37, 512])
def test_the_rounding_loss_is_within_its_bound(kernel: InterpretedKernel, level: Level, dim: int) -> None:
    rng = np.random.default_rng(dim)
    for spike in (0, 3):
        vectors = rng.normal(size=(9, dim))
        vectors[:, 1] += spike
        query = query_of(*vectors)
        query = replace(query, weights=np.where(np.arange(9) == 4, 0, query.weights))
        one, said = packed(kernel, query, level)
        kept = np.flatnonzero(query.weights)
        exact = rotate(query.probes) if level.codes else query.probes.astype(np.float64)
        lost = np.linalg.norm(exact[kept] - read(one, dim), axis=1)
        assert one.count == len(kept)
        assert said.shape == (9,)
        assert (lost <= said[kept]).all()
        assert (said < (0.05 if level.coarse else 1e-3)).all()


def test_the_read_mode_of_a_query_does_not_depend_on_other_queries(kernel: InterpretedKernel) -> None:
    """One that needs two parts and one of a sharp tau: each goes with its like, and none is read otherwise for them."""
    rng = np.random.default_rng(3)
    plain = [make_query(rng, 20, 512) for _ in range(3)]
    sharp = make_query(rng, 20, 512, tau=0.005)
    sparse = query_of(np.eye(512)[7] + np.eye(512)[1] * 1228.5 / 2048)  # half way between two fp16 numbers
    queries = [plain[0], sharp, plain[1], sparse, plain[2]]
    found = kernel.packed([queries], VECTORS, 512)
    assert sorted(places for places, *_ in found) == [[0, 2, 4], [1], [3]]
    for places, arrays, lost in found:
        assert arrays["shifted"] == (places == [1])
        for place, said in zip(places, lost, strict=True):
            np.testing.assert_array_equal(said, packed(kernel, queries[place], VECTORS)[1])


def test_queries_are_cut_into_sweeps_that_fit() -> None:
    rng = np.random.default_rng(4)
    many = [probes_of(make_query(rng, 1, 64), CODES) for _ in range(130)]
    assert [len(group) for group in groups_of(many)] == [64, 64, 2]
    long = [probes_of(make_query(rng, 1000, 64), CODES) for _ in range(5)]
    assert [len(group) for group in groups_of(long)] == [2, 2, 1]
