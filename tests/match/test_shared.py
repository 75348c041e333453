"""Scores of queries that share probes are those of the kernel, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.match import score_many
from tapr.match.memory_bank import MemoryBank
from tapr.match.numpy_kernel import NumpyKernel
from tapr.match.shared import score_shared
from tapr.score.compile import CompiledQuery

cpu = pytest.importorskip("tapr.match.cpu", reason="the compiled kernel was not built", exc_type=ImportError)
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
        wholes = unit(draw.standard_normal((1 + number % 2, DIM))).astype(np.float32)
        made.append(CompiledQuery(wholes, draw.uniform(0, 1, len(wholes)).astype(np.float32), probes, weights, ()))
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
