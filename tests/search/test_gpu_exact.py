"""Exact sums and ranks as a GPU makes them, here by torch on the processor: the same bits as NumPy's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.evaluate import ranking, terms
from tapr.evaluate.ranking import GroundTruth
from tapr.methods import baselines, features, stitch
from tapr.methods.features import BankView, Features
from tapr.search.kernels import choose, exact
from tapr.search.kernels.choose import choose_kernel
from tapr.search.memory_bank import MemoryBank
from tests.search.banks import random_bank

torch = pytest.importorskip("torch", reason="needs torch")
from tapr.search.kernels import gpu_exact  # noqa: E402

CPU = torch.device("cpu")


class TorchMap:
    """GpuKernel.map, on the processor."""

    device = CPU

    def map(self, bank: Any, rows: Any, function: Any) -> Any:
        block = bank.gather(np.arange(bank.row_count) if rows is None else rows)
        arrays = (torch.from_numpy(array.astype(np.float32)) for array in (block.global_vectors, block.local_vectors))
        return function(*arrays).numpy()


def test_similarities_have_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    gallery, vectors = (unit(rng.standard_normal((count, 40))) for count in (50, 7))
    stored = gallery.astype(np.float16).astype(np.float32)
    for _ in range(2):  # the second time, the gallery is there
        found = gpu_exact.similarities(exact.on_grid(vectors).T, stored, exact.BANK_STEP, CPU)
        np.testing.assert_array_equal(found, exact.similarities(vectors, stored))
    other = np.ascontiguousarray(stored[::-1])
    found = gpu_exact.similarities(exact.on_grid(vectors).T, other, exact.BANK_STEP, CPU)
    np.testing.assert_array_equal(found, exact.similarities(vectors, other))


@pytest.mark.parametrize("keep", [None, True, False])
@pytest.mark.parametrize("subset", [None, np.array([1, 4, 9, 30])])
def test_ranks_are_the_same(keep: bool | None, subset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((5, 40)).astype(np.float32) / 4
    rows[:, 20:30] = rows[:, 4:5]  # ties on both sides of the right answer
    weights = rng.standard_normal((6, 5))
    truth = GroundTruth((3,), np.array([4, 3, 25]), subset, keep_reference=False)
    right = truth.ranks_by_weights(weights, rows, keep)
    monkeypatch.setattr(ranking, "_WORTH_GPU", 0)
    monkeypatch.setattr(ranking, "gpu_in_use", lambda: SimpleNamespace(device=CPU))
    assert truth.ranks_by_weights(weights, rows, keep) == right
    monkeypatch.setattr(gpu_exact, "ranks", lambda *_: pytest.fail("the device is asked"))
    with pytest.raises(pytest.fail.Exception, match="the device is asked"):
        truth.ranks_by_weights(weights, rows, keep)


def made_features() -> Features:
    rng = np.random.default_rng(2)
    bank = MemoryBank.of(*random_bank(rng, 30, 9, 32))
    rows = np.array([4, 0, 4, *range(7, 29)])
    return Features(None, BankView(bank, rows), {})  # type: ignore[arg-type]


def test_maxsim_and_stitch_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, view = np.random.default_rng(3), made_features()
    probes = unit(rng.standard_normal((6, 32)))
    texts = unit(rng.standard_normal((2, 5, 32)))
    right = baselines.best_matches(probes, view), stitch._chunk_scores(texts, view)
    monkeypatch.setattr(features, "gpu_in_use", TorchMap)
    found = baselines.best_matches(probes, view), stitch._chunk_scores(texts, view)
    for one, other in zip(found, right, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(one[:, 0], one[:, 2])  # the same picture


def test_terms_by_the_search_kernel_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, view = np.random.default_rng(4), made_features()
    probes, references = unit(rng.standard_normal((5, 32))), unit(rng.standard_normal((3, 9, 32)))
    taus = (0.01, 0.02)
    right = terms.soft_scores(probes, view, taus), terms.continuity(references, view, taus)
    monkeypatch.setattr(terms, "gpu_in_use", choose_kernel)
    found = terms.soft_scores(probes, view, taus), terms.continuity(references, view, taus)
    for one, other in zip(found, right, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


def test_no_gpu_is_in_use_where_another_kernel_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_KERNEL", "numpy")
    assert choose.gpu_in_use() is None
