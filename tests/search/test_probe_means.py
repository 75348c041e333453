"""Scores of queries that share probes are those of the kernel, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery
from tapr.score.definition import probe_scores
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.probe_means import MeansKernel, ProbeMeans, means_kernel, score_shared
from tapr.search.sweep import score_many

cpu = pytest.importorskip("tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError)
PICTURES, LOCALS, DIM = 37, 49, 64


def queries(shared: bool) -> list[CompiledQuery]:
    draw = np.random.default_rng(3)
    reference = unit(draw.standard_normal((LOCALS, DIM))).astype(np.float32)
    made = []
    for number in range(6):
        own = unit(draw.standard_normal((5, DIM))).astype(np.float32)
        other = reference if shared else unit(draw.standard_normal((LOCALS, DIM))).astype(np.float32)
        probes = np.concatenate([own[:3], other, own[3:]])
        weights = draw.uniform(-1, 1, len(probes)).astype(np.float32)
        weights[number] = 0  # a probe without weight is not read
        global_probes = unit(draw.standard_normal((1 + number % 2, DIM))).astype(np.float32)
        made.append(
            CompiledQuery(global_probes, draw.uniform(0, 1, len(global_probes)).astype(np.float32), probes, weights, ())
        )
    return made


@pytest.mark.parametrize("isa", cpu.isas())
@pytest.mark.parametrize("shared", [True, False])
def test_shared_probes_give_the_same_bits(isa: str, shared: bool) -> None:
    draw = np.random.default_rng(4)
    vectors = unit(draw.standard_normal((PICTURES, LOCALS + 1, DIM))).astype(np.float32)
    bank = MemoryBank.of(vectors[:, 0], vectors[:, 1:])
    kernel = cpu.CpuKernel(isa)
    asked = queries(shared)
    np.testing.assert_array_equal(score_shared(asked, bank, kernel), score_many(asked, bank, kernel))


def test_other_kernels_are_asked_the_plain_way() -> None:
    draw = np.random.default_rng(4)
    vectors = unit(draw.standard_normal((5, LOCALS + 1, DIM))).astype(np.float32)
    bank = MemoryBank.of(vectors[:, 0], vectors[:, 1:])
    asked = queries(True)
    np.testing.assert_array_equal(score_shared(asked, bank, NumpyKernel()), score_many(asked, bank, NumpyKernel()))


@pytest.mark.parametrize("isa", cpu.isas())
def test_means_at_several_taus_are_the_definition_and_the_score(isa: str) -> None:
    draw = np.random.default_rng(5)
    vectors = unit(draw.standard_normal((PICTURES, LOCALS + 1, DIM))).astype(np.float32)
    bank = MemoryBank.of(vectors[:, 0], vectors[:, 1:], rows=np.array([3, 1, 1, 30, 8]), block_rows=16)
    probes = unit(draw.standard_normal((70, DIM))).astype(np.float32)  # a whole panel and a few
    kernel = cpu.CpuKernel(isa)
    taus = (0.005, 0.02, 0.08, 0.0)
    found = ProbeMeans(bank, kernel).of(probes, taus)  # (T, P, N)
    local = bank.gather(bank.rows).decoded().astype(np.float64)
    for number, tau in enumerate(taus[:3]):
        np.testing.assert_allclose(found[number], probe_scores(probes, local, tau).T, atol=1e-5)
        nothing, none, one = np.zeros((1, DIM), np.float32), np.zeros(1, np.float32), np.ones(1, np.float32)
        alone = [CompiledQuery(nothing, none, probe[None], one, (), tau) for probe in probes]
        np.testing.assert_array_equal(found[number], score_many(alone, bank, kernel))
    np.testing.assert_allclose(found[3], np.einsum("pd,nmd->pnm", probes, local).max(axis=2), atol=1e-5)


def test_cached_probe_means_are_not_computed_again() -> None:
    draw = np.random.default_rng(4)
    vectors = unit(draw.standard_normal((PICTURES, LOCALS + 1, DIM))).astype(np.float32)
    bank = MemoryBank.of(vectors[:, 0], vectors[:, 1:])
    kernel = means_kernel(bank, cpu.CpuKernel())
    assert kernel is not None
    asked = queries(True)
    known = ProbeMeans(bank, kernel)
    known.of(np.concatenate([query.probes for query in asked]), (0.08,), keep=(asked[0].tau,))
    plain = score_many(asked, bank, kernel)
    known._kernel = _Refusing(kernel)  # type: ignore[assignment]
    np.testing.assert_array_equal(score_shared(asked, bank, kernel, known), plain)


class _Refusing:
    def __init__(self, kernel: MeansKernel) -> None:
        self.dots = kernel.dots

    def means(self, *_: object) -> None:
        raise AssertionError("matched again")
