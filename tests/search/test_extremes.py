"""Every kernel at the ends: extreme tau and weights, zero vectors, 0 and 1 pictures, hundreds of probes, damage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapr.errors import TaprError
from tapr.score.compile import TAU_MAX, TAU_MIN
from tapr.score.definition import score as by_definition
from tapr.search.kernels.base import Kernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score
from tapr.search.topk import top_k
from tapr.store.block import PRECISIONS, Precision
from tests.search.banks import make_query, random_bank

COUNT, DIM = 9, 32


def agrees(query: object, bank: MemoryBank, kernel: Kernel) -> None:
    found = score(query, bank, kernel)  # type: ignore[arg-type]
    block = bank.gather(bank.rows)
    expected = by_definition(query, block.global_vectors, block.decoded())  # type: ignore[arg-type]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, atol=3e-4 if bank.precision == "int8" else 2e-5)
    best = top_k(query, bank, 3, kernel)  # type: ignore[arg-type]
    assert len(best.positions) == min(3, len(bank))
    assert np.isfinite(best.scores).all()


@pytest.mark.parametrize("tau", [TAU_MIN, 1e-6, 1e-3, 1.0, 1e3, TAU_MAX])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_extreme_tau(kernel: Kernel, tau: float, precision: Precision) -> None:
    rng = np.random.default_rng(1)
    bank = MemoryBank.of(*random_bank(rng, 40, COUNT, DIM), precision)
    agrees(make_query(rng, 5, DIM, tau), bank, kernel)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_from_denormal_to_one(kernel: Kernel, precision: Precision) -> None:
    rng = np.random.default_rng(2)
    bank = MemoryBank.of(*random_bank(rng, 40, COUNT, DIM), precision)
    query = make_query(rng, 6, DIM)
    weights = np.array([1e-45, -1e-40, 0, 0.5, -0.5, 1e-30], np.float32)
    agrees(replace(query, weights=weights), bank, kernel)
    agrees(replace(query, weights=np.zeros(6, np.float32)), bank, kernel)
    agrees(replace(query, weights=np.full(6, 1e-45, np.float32), global_weights=np.zeros(1, np.float32)), bank, kernel)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_of_length_zero(kernel: Kernel, precision: Precision) -> None:
    """An empty patch has no direction: it agrees with nothing, and its picture still has a score."""
    rng = np.random.default_rng(3)
    global_vectors, local_vectors = random_bank(rng, 20, COUNT, DIM)
    local_vectors[3, 4] = 0
    local_vectors[5] = 0
    global_vectors[5] = 0
    bank = MemoryBank.of(global_vectors, local_vectors, precision)
    query = make_query(rng, 4, DIM)
    agrees(query, bank, kernel)
    assert score(query, bank, kernel)[5] == 0
    empty = query.probes.copy()
    empty[1] = 0
    agrees(replace(query, probes=empty), bank, kernel)
    agrees(replace(query, probes=np.zeros_like(empty), global_probes=np.zeros_like(query.global_probes)), bank, kernel)


@pytest.mark.parametrize("probes", [0, 1, 256, 1000])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_probes_and_hundreds(kernel: Kernel, probes: int, precision: Precision) -> None:
    rng = np.random.default_rng(4)
    bank = MemoryBank.of(*random_bank(rng, 12, COUNT, DIM), precision)
    agrees(make_query(rng, probes, DIM), bank, kernel)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_galleries_of_one_picture_and_of_none(kernel: Kernel, rows: int, precision: Precision) -> None:
    rng = np.random.default_rng(5)
    bank = MemoryBank.of(*random_bank(rng, rows, COUNT, DIM), precision)
    agrees(make_query(rng, 3, DIM), bank, kernel)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("pictures", [1, 100])
def test_a_damaged_bank_is_an_error_and_not_a_ranking(kernel: Kernel, odd: float, pictures: int) -> None:
    """Before, a NaN among the global vectors gave an empty answer."""
    rng = np.random.default_rng(6)
    bank = MemoryBank.of(*random_bank(rng, pictures, COUNT, DIM))
    bank.block.global_vectors[0, 0] = odd
    query = make_query(rng, 3, DIM)
    for ask in (lambda: score(query, bank, kernel), lambda: top_k(query, bank, pictures, kernel)):
        with pytest.raises(TaprError, match="infinite or not a number"):
            ask()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's own
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_damaged_local_vector_is_an_error_at_every_level(kernel: Kernel, odd: float) -> None:
    """Whole numbers have no NaN: a kernel that reads vectors as such must tell by itself."""
    rng = np.random.default_rng(7)
    bank = MemoryBank.of(*random_bank(rng, 100, COUNT, DIM))
    assert bank.block.local_vectors is not None
    bank.block.local_vectors[40, COUNT - 1, DIM - 1] = odd
    query = make_query(rng, 3, DIM)
    for level in kernel.levels(bank):
        assert not np.isfinite(kernel.score([query], bank, level)[0, 40])
