"""Sketches bound every score from above, and a search that uses them answers as if all had been scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.errors import TaprError
from tapr.score.compile import TAU_MAX, TAU_MIN, CompiledQuery
from tapr.score.definition import score as by_definition
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.bounds import row_errors
from tapr.search.kernels.sketch import level_of, sketch_of, sketches_of
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import top_k, top_k_many
from tapr.store.block import PRECISIONS, Precision
from tapr.types import Float32
from tests.search.banks import (
    KERNELS,
    clustered_bank,
    like_this,
    make_query,
    near_bank,
    random_bank,
    spiked_bank,
)
from tests.search.test_topk import answers_as_if_all_had_been_scored

ABLE = [kernel for kernel in KERNELS if kernel.sketcher]
pytestmark = pytest.mark.skipif(not ABLE, reason="the compiled kernel was not built")


@pytest.fixture(params=ABLE, ids=[kernel.name for kernel in ABLE])
def able(request: pytest.FixtureRequest) -> Any:
    found: Any = request.param
    return found


def precise(bank: MemoryBank, precision: Precision) -> MemoryBank:
    block = bank.block
    kept = {
        "fp16": replace(block, local_codes=None, local_scales=None, local_errors=None),
        "int8": replace(block, local_vectors=None),
    }
    return MemoryBank(bank.card, precision, kept.get(precision, block), bank.rows)


def bounds_hold(query: CompiledQuery, bank: MemoryBank, kernel: Any) -> Float32:
    """-> how far the bounds are above the scores."""
    sketch = sketch_of(query)
    levels, errors, count = kernel.levels(bank), row_errors(bank), bank.card.locals_count
    level = level_of(levels)
    found = kernel.highest([sketch], [sketch.longest(kernel, level, errors)], bank, level, None)[0]
    highest = found + sketch.slack(kernel, level, levels[-1], errors, count)
    scores = kernel.score([query], bank, levels[-1], None)[0]
    assert (highest >= scores).all()
    return np.asarray(highest - scores)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("count", "dim"), [(49, 64), (1, 32), (3, 37), (50, 512), (9, 129)])
def test_no_score_is_above_its_bound(able: Any, precision: Precision, count: int, dim: int) -> None:
    rng = np.random.default_rng(count * dim)
    for words, places in ((0, (49,)), (3, (49,)), (5, (49, 49, 20)), (16, (60,))):
        query = like_this(rng, dim, words, places)
        bank = precise(near_bank(rng, 60, count, dim, query), precision)
        assert len(sketch_of(query).directions)
        above = bounds_hold(query, bank, able)
        if precision == "fp16":  # nor is it far from it where the picture is the reference's
            assert above.min() < 0.1


def test_the_bound_is_the_definitions(able: Any) -> None:
    """By hand, in float64: the words' soft means, and of the others the largest product with what is beside them."""
    rng = np.random.default_rng(5)
    query = like_this(rng, 48)
    bank = precise(near_bank(rng, 30, 9, 48, query), "fp16")
    sketch, level = sketch_of(query), level_of(able.levels(bank))
    limit = sketch.longest(able, level, row_errors(bank))
    vectors = bank.block.decoded().astype(np.float64)  # (N, M, d)
    seen = vectors @ sketch.directions.T.astype(np.float64)  # (N, M, R)
    beside = np.sqrt(np.maximum(limit - (seen**2).sum(-1), 0))
    reached = seen @ sketch.coefficients.T + beside[..., None] * sketch.rests  # (N, M, n)
    wanted = by_definition(sketch.words, bank.block.global_vectors, vectors)
    wanted += reached.max(axis=1) @ sketch.alike.weights.astype(np.float64)
    found = able.highest([sketch], [limit], bank, level, None)[0]
    np.testing.assert_allclose(found, wanted, atol=2e-3 if level.coarse else 2e-5)


@pytest.mark.parametrize("make", [random_bank, clustered_bank, spiked_bank])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_answers_are_those_of_a_full_scan(able: Any, make: object, precision: Precision) -> None:
    rng = np.random.default_rng(7)
    assert callable(make)
    global_probes, locals_ = make(rng, 300, 9, 64)
    global_probes[200:], locals_[200:] = global_probes[:100], locals_[:100]  # true ties
    queries = [like_this(rng, 64, int(rng.integers(0, 9))) for _ in range(6)]
    locals_[7], locals_[8] = queries[0].probes[-9:], queries[1].probes[-9:]  # nearly the reference itself
    bank = MemoryBank.of(global_probes, locals_, precision)
    for k in (1, 5, 18):
        answers_as_if_all_had_been_scored(queries, bank, k, able)
        answers_as_if_all_had_been_scored(queries[:1], bank, k, able)


def test_many_queries_fill_several_panels_beside_queries_without_a_sketch(able: Any) -> None:
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*clustered_bank(rng, 200, 12, 64), "both")
    queries = [like_this(rng, 64, number % 13) for number in range(30)]
    queries[3::5] = [make_query(rng, number, 64) for number in (0, 1, 7, 15, 3, 4)]
    assert sketches_of(queries) is not None
    answers_as_if_all_had_been_scored(queries, bank, 10, able)


def test_hard_queries(able: Any) -> None:
    rng = np.random.default_rng(9)
    bank = MemoryBank.of(*clustered_bank(rng, 150, 9, 32), "both")
    plain = like_this(rng, 32)
    same = replace(plain, probes=np.concatenate([plain.probes[:3], np.repeat(plain.probes[3:4], 49, axis=0)]))
    weights = plain.weights.copy()
    weights[5:30] = 0
    hard = [
        *(like_this(rng, 32, tau=tau) for tau in (TAU_MIN, 1e-4, 0.5, TAU_MAX)),
        same,  # one direction is all there is
        replace(plain, weights=weights),
        replace(plain, weights=np.where(plain.weights > 0, np.float32(1e-45), 0).astype(np.float32)),
        replace(plain, probes=np.concatenate([plain.probes[:3], np.zeros((49, 32), np.float32)])),
        replace(plain, global_weights=np.zeros(1, np.float32)),
        replace(plain, weights=-plain.weights),  # the picture is unwanted: no sketch
        replace(plain, terms=()),
    ]
    for query in hard:
        answers_as_if_all_had_been_scored([query], bank, 5, able)
        bounds_hold(query, bank, able)
    assert len(sketch_of(same).directions) == 1
    assert not len(sketch_of(hard[-1]).directions)
    assert not len(sketch_of(hard[-2]).directions)


def test_probes_that_have_little_in_common_are_not_sketched() -> None:
    rng = np.random.default_rng(10)
    apart = like_this(rng, 512)
    apart = replace(apart, probes=unit(rng.standard_normal(apart.probes.shape)).astype(np.float32))
    assert not len(sketch_of(apart).directions)
    assert sketches_of([apart]) is None
    assert sketches_of([like_this(rng, 512), apart]) is None  # it would be read in full


def test_most_pictures_are_ruled_out_by_the_sketch(able: Any) -> None:
    rng = np.random.default_rng(11)
    query = like_this(rng, 64)
    bank = precise(near_bank(rng, 600, 9, 64, query), "fp16")
    found = top_k(query, bank, 10, able)
    assert found.rescored is not None  # also where this kernel has no other cheap reading
    assert found.rescored < 200


def test_a_single_query_fills_a_register_and_a_batch_uses_few_lanes() -> None:
    query = like_this(np.random.default_rng(12), 512, words=2)
    assert len(sketch_of(query, alone=True).reading.weights) == 8
    assert len(sketch_of(query, alone=False).directions) == 3


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_damage_is_refused(able: Any, odd: float) -> None:
    rng = np.random.default_rng(13)
    bank = MemoryBank.of(*random_bank(rng, 100, 9, 32), "fp16")
    assert bank.block.local_vectors is not None
    bank.block.local_vectors[50, 4, 5] = odd
    with pytest.raises(TaprError, match="infinite or not a number"):
        top_k_many([like_this(rng, 32), like_this(rng, 32)], bank, 3, able)


def test_rows_that_are_dead_or_shared(able: Any) -> None:
    rng = np.random.default_rng(14)
    bank = MemoryBank.of(*clustered_bank(rng, 120, 9, 32), "both")
    some = MemoryBank(bank.card, "both", bank.block, np.array([*range(100, 20, -1), 50, 50, 21]))
    answers_as_if_all_had_been_scored([like_this(rng, 32) for _ in range(3)], some, 4, able)


def test_every_compiled_kernel_is_able() -> None:
    assert {kernel.name for kernel in KERNELS if kernel.name.startswith("cpu-")} == {kernel.name for kernel in ABLE}


def kernels_that_are_not() -> list[Kernel]:
    return [kernel for kernel in KERNELS if not kernel.sketcher]


def test_other_kernels_answer_the_same_pictures() -> None:
    rng = np.random.default_rng(15)
    query = like_this(rng, 64)
    bank = precise(near_bank(rng, 200, 9, 64, query), "fp16")
    wanted = top_k(query, bank, 8, ABLE[0])
    for kernel in kernels_that_are_not():
        found = top_k(query, bank, 8, kernel)
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-4)
