"""The bound on what int8 can change: it holds, and it is not loose."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.score import definition as reference
from tapr.search.kernels.base import CODES, VECTORS
from tapr.search.kernels.bounds import radius, steepness
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tests.search.banks import clustered_bank, make_query, random_bank


def soft_mean(s: np.ndarray, tau: float) -> np.ndarray:
    """l_tau from dot products (..., M)."""
    p = np.exp((s - s.max(axis=-1, keepdims=True)) / tau)
    return np.asarray((p * s).sum(axis=-1) / p.sum(axis=-1))


@pytest.mark.parametrize("count", [1, 2, 3, 9, 49, 64, 256])
def test_no_change_of_the_dot_products_moves_the_soft_mean_further(count: int) -> None:
    rng = np.random.default_rng(count)
    tau, error = 0.02, 0.008
    s = rng.normal(0, 1, (4000, count)) * rng.uniform(0, 0.2, (4000, 1))
    s[:2000, 0] += rng.uniform(0, 0.3, 2000)  # one that stands out
    for change in (
        rng.uniform(-error, error, s.shape),
        error * np.sign(rng.normal(size=s.shape)),
        _worst(s, tau) * error,
    ):
        moved = np.abs(soft_mean(s + change, tau) - soft_mean(s, tau))
        assert moved.max() <= steepness(count) * error + 1e-12  # of rounding


def _worst(s: np.ndarray, tau: float) -> np.ndarray:
    """The sign of the derivative: up where the mean grows."""
    return np.asarray(np.sign(1 + (s - soft_mean(s, tau)[:, None]) / tau))


@pytest.mark.parametrize("count", [9, 49, 64])
def test_the_constant_is_reached(count: int) -> None:
    """One heavy place and equal light ones: some weight of the heavy one moves the mean almost as far as allowed."""
    tau, error = 0.02, 1e-7
    s = np.zeros((400, count))
    s[:, 0] = np.linspace(0, 0.3, 400)
    moved = soft_mean(s + _worst(s, tau) * error, tau) - soft_mean(s, tau)
    assert moved.max() > 0.99 * steepness(count) * error


def test_the_constant_grows_slowly() -> None:
    assert steepness(1) == 1
    assert 2.3 < steepness(49) < 2.4 < steepness(64) < 2.6


@pytest.mark.parametrize("tau", [0.005, 0.02, 0.08])
@pytest.mark.parametrize("make", [random_bank, clustered_bank])
def test_scores_from_codes_are_within_the_radius(make: object, tau: float) -> None:
    rng = np.random.default_rng(0)
    assert callable(make)
    globals_, locals_ = make(rng, 200, 16, 48)
    bank = MemoryBank.of(globals_, locals_, "both")
    codes = MemoryBank.of(globals_, locals_, "int8")
    query = make_query(rng, 20, 48, tau, near=locals_)
    assert bank.block.local_errors is not None
    exact = reference.score(query, bank.block.global_vectors, bank.block.decoded())
    coded = reference.score(query, codes.block.global_vectors, codes.block.decoded())
    errors = bank.block.local_errors.max(axis=1)
    within = radius(query, NumpyKernel(), CODES, VECTORS, errors, 16)
    assert (np.abs(exact - coded) <= within).all()
    assert within.max() < 0.06
