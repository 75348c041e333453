"""Bounds from summaries: never below the score by the definition, the same from every kernel, and tight where a summary
holds everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery
from tapr.score.definition import score as defined
from tapr.search.kernels.base import CODES, VECTORS, Kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import resemblance
from tapr.search.prefilter.limit import Limit, limit_of, limits_by_numpy
from tapr.search.sweep import score
from tapr.store.summary import directions_of, nibbles_as_codes
from tapr.types import Float32, Float64
from tests.search.banks import KERNELS, clustered_bank, make_query, random_bank, spiked_bank

COMPILED = [kernel for kernel in KERNELS if kernel.name.startswith("cpu-")]
BANKS = [random_bank, clustered_bank, spiked_bank]
WORDS = 1e-3  # per weight: more than products of 16 bits lose
ALL = np.full(1, -np.inf, np.float32)  # a floor that every picture reaches


def bank_of(vectors: Any, rng: np.random.Generator) -> MemoryBank:
    return MemoryBank.of(unit(rng.standard_normal((len(vectors), vectors.shape[-1]))), vectors).summarised()


def held_by(bank: MemoryBank, *, closer: bool) -> Float64:
    """(N, M, d): what the records say of the rotated local vectors."""
    total = np.zeros(bank.block.decoded().shape)
    assert bank.block.pooled is not None
    means = bank.block.pooled[:, None, bank.card.dim :]
    for records, before in ((bank.block.outlines, means), (bank.block.summaries, means[:, :0]))[: 1 + closer]:
        assert records is not None
        numbers = np.concatenate([before, nibbles_as_codes(records["codes"], bank.card.dim)], axis=1)
        total += records["shares"] @ (numbers * records["scales"].astype(np.float64)[..., None])
    return total


def slack_of(query: CompiledQuery, bank: MemoryBank, kernel: Kernel, *, closer: bool = True) -> Float32:
    """How far the bounds are above the scores; the definition's and the kernel's must not be above them."""
    (found,) = highest([query], bank, None, kernel, VECTORS, floors=ALL if closer else None)
    slack = found - defined(query, bank.block.global_vectors, bank.block.decoded())
    assert slack.min() >= 0
    assert (found >= score(query, bank, kernel)).all()
    return np.asarray(slack)


def allowed(limit: Limit, kernel: Any, count: int, *, finer: bool) -> float:
    """How far a kernel's bound can be above the definition's: it adds what rounding takes from probes and products."""
    lost = kernel.rounding_loss(limit.query, kernel.bound_level(closer=finer))
    return limit.slack(count, 2 * lost) + WORDS * float(np.abs(limit.weights).sum()) + 1e-6


@pytest.mark.parametrize("make", BANKS)
@pytest.mark.parametrize(("count", "dim"), [(1, 8), (2, 3), (5, 7), (9, 64), (49, 32)])
def test_no_score_is_above_its_bound(make: Any, count: int, dim: int) -> None:
    rng = np.random.default_rng(3)
    bank = MemoryBank.of(*make(rng, 40, count, dim)).summarised()
    near = bank.block.decoded().astype(np.float32)
    for probes in (0, 1, 30):
        for tau in (1e-6, 0.02, 10.0):
            for query in (make_query(rng, probes, dim, tau, near=near), make_query(rng, probes, dim, tau)):
                outlined, summarised = (slack_of(query, bank, NumpyKernel(), closer=closer) for closer in (False, True))
                assert summarised.mean() <= outlined.mean() + 1e-6


@pytest.mark.parametrize("kernel", COMPILED, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("make", BANKS)
@pytest.mark.parametrize(("count", "dim"), [(1, 8), (2, 3), (5, 7), (9, 64), (49, 512)])
def test_a_compiled_bound_is_the_definitions_but_for_rounding(kernel: Any, make: Any, count: int, dim: int) -> None:
    rng = np.random.default_rng(4)
    bank = MemoryBank.of(*make(rng, 30, count, dim)).summarised()
    assert bank.subspaces is not None
    for probes in (0, 1, 20, 70):
        near = bank.block.decoded().astype(np.float32)
        queries = [make_query(rng, probes, dim, near=near), make_query(rng, 3, dim)]
        limits = [limit_of(query, bank.subspaces, count) for query in queries]
        targets = resemblance(queries, bank, None, kernel).targets
        for closer in (False, True):
            floors = np.full(2, -np.inf) if closer else None
            right = limits_by_numpy(limits, bank, None, targets, floors)
            found = kernel.limits(limits, bank, None, targets, floors)
            assert (found >= right - [[limit.slack(count) + 1e-6] for limit in limits]).all()
            above = [allowed(limit, kernel, count, finer=False) for limit in limits]
            assert (found <= right + np.array(above)[:, None]).all()
            if closer and directions_of(count, dim)[1]:  # a few probes' limits are by their outlines and one byte
                above = [allowed(limit, kernel, count, finer=True) for limit in limits]
                assert (np.median(found - right, axis=1) <= above).all()
            some = np.array([0, 3, 4, 17])
            # the same in any company, of rows and of queries
            np.testing.assert_array_equal(kernel.limits(limits, bank, some, targets[:, some], floors), found[:, some])
            alone = kernel.limits(limits[1:], bank, None, targets[1:], None if floors is None else floors[1:])[0]
            np.testing.assert_allclose(alone, found[1], rtol=1e-6, atol=1e-6)
            for query in queries:
                slack_of(query, bank, kernel, closer=closer)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("make", BANKS)
def test_only_what_reaches_a_floor_is_looked_at_closer(kernel: Kernel, make: Any) -> None:
    rng = np.random.default_rng(14)
    bank = MemoryBank.of(*make(rng, 60, 9, 64)).summarised()
    near = bank.block.decoded().astype(np.float32)
    queries = [make_query(rng, 40, 64, near=near), make_query(rng, 3, 64), make_query(rng, 0, 64)]
    outlined = highest(queries, bank, None, kernel, VECTORS)
    closest = highest(queries, bank, None, kernel, VECTORS, floors=np.full(3, -np.inf, np.float32))
    for part in (0.1, 0.5, 0.9):
        floors = np.quantile(outlined, part, axis=1).astype(np.float32)
        found = highest(queries, bank, None, kernel, VECTORS, floors=floors)
        exact = np.stack([score(query, bank, kernel) for query in queries])
        assert (found >= exact).all()
        reach, below = outlined >= floors[:, None], outlined < floors[:, None] - 1e-3
        np.testing.assert_allclose(found[:, below.all(axis=0)], outlined[:, below.all(axis=0)], atol=1e-6)
        # ruled out where the closest bound does it, and not looked at any more once it is
        assert (
            found[reach & (closest < floors[:, None] - 1e-3)]
            < np.broadcast_to(floors[:, None], reach.shape)[reach & (closest < floors[:, None] - 1e-3)]
        ).all()
        open_ = (found >= floors[:, None]) & reach
        np.testing.assert_allclose(found[open_], closest[open_], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_probes_that_point_along_what_is_left_out(kernel: Kernel) -> None:
    """The worst for a bound: each probe is the rest of one picture's vector itself."""
    from tapr.store.codec import rotation

    rng = np.random.default_rng(4)
    bank = bank_of(random_bank(rng, 30, 12, 24)[1], rng)
    one = make_query(rng, 1, 24)
    for closer in (False, True):
        rests = (bank.block.decoded() @ rotation(24).T - held_by(bank, closer=closer)) @ rotation(24)
        for rest in unit(rests.reshape(-1, 24))[::29]:
            for sign in (1, -1):
                for weight in (0.6, -0.6):
                    probes, weights = (sign * rest[None]).astype(np.float32), np.array([weight], np.float32)
                    slack_of(replace(one, probes=probes, weights=weights), bank, kernel, closer=closer)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_remove_only_weights_of_zero_and_one_heavy_probe(kernel: Kernel) -> None:
    rng = np.random.default_rng(5)
    bank = MemoryBank.of(*clustered_bank(rng, 50, 9, 32)).summarised()
    query = make_query(rng, 6, 32, near=bank.block.decoded().astype(np.float32))
    removing = replace(query, weights=-np.abs(query.weights))
    assert slack_of(removing, bank, kernel).mean() < 0.1
    nothing = replace(query, weights=np.zeros_like(query.weights))
    assert slack_of(nothing, bank, kernel).max() < 1e-3
    for factor in (1e-6, 1e3):
        slack_of(replace(query, weights=np.float32(factor) * query.weights), bank, kernel)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_vectors_of_length_0_copies_and_one_local_vector(kernel: Kernel) -> None:
    rng = np.random.default_rng(7)
    vectors = random_bank(rng, 20, 6, 16)[1]
    vectors[3], vectors[4, 2] = 0, 0
    slack_of(make_query(rng, 5, 16), bank_of(vectors, rng), kernel)
    slack_of(make_query(rng, 5, 16), bank_of(np.zeros((4, 6, 16)), rng), kernel)
    few = unit(rng.standard_normal((30, 2, 64)))
    for copied in (np.repeat(few[:, :1], 12, axis=1), few[:, rng.integers(0, 2, 12)], few[:, :1]):
        bank = bank_of(copied, rng)
        for query in (make_query(rng, 9, 64), make_query(rng, 9, 64, near=copied)):
            assert slack_of(query, bank, kernel).max() < 0.1  # what nibbles lose
    empty = bank_of(vectors, rng)
    assert highest([make_query(rng, 5, 16)], empty, np.zeros(0, np.int64), kernel, CODES, floors=ALL).shape == (1, 0)


def test_rests_are_what_is_left_and_never_shorter() -> None:
    rng = np.random.default_rng(8)
    from tapr.store.codec import rotate

    vectors = spiked_bank(rng, 25, 20, 48)[1].astype(np.float16)
    bank = bank_of(vectors, rng)
    assert bank.subspaces is not None
    for records, closer in ((bank.block.outlines, False), (bank.block.summaries, True)):
        assert records is not None
        rests = rotate(vectors) - held_by(bank, closer=closer)
        kept = records["rests"] * records["step"].astype(np.float64)[:, None, None]
        exact = rests @ bank.subspaces.basis.astype(np.float64)
        starts = (0, *bank.subspaces.ends[:-1])
        lengths = [np.linalg.norm(exact[..., a:b], axis=-1) for a, b in zip(starts, bank.subspaces.ends, strict=True)]
        assert (kept >= np.stack(lengths, axis=-1)).all()


def test_more_directions_bound_closer_and_few_vectors_have_few() -> None:
    rng = np.random.default_rng(9)
    vectors = unit(rng.standard_normal((60, 1, 64)) + 0.5 * rng.standard_normal((60, 20, 64)))
    bank, query = bank_of(vectors, rng), make_query(rng, 10, 64, near=vectors)
    outlined, summarised = (slack_of(query, bank, NumpyKernel(), closer=closer).mean() for closer in (False, True))
    assert summarised < outlined / 2
    assert [directions_of(*shape) for shape in ((1, 512), (2, 512), (5, 512), (49, 512), (49, 2))] == [
        (1, 0),
        (2, 0),
        (3, 2),
        (3, 12),
        (2, 0),
    ]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dim", [1, 3, 64, 512])
def test_targets_by_bytes_are_not_below_the_targets_terms(kernel: Kernel, dim: int) -> None:
    rng = np.random.default_rng(10)
    spikes = np.eye(dim)[rng.integers(0, dim, 30)]  # as unlike the others' sizes as vectors can be
    for vectors in (unit(rng.standard_normal((30, dim))), spikes, np.zeros((30, dim))):
        bank = MemoryBank.of(vectors, unit(rng.standard_normal((30, 4, dim)))).summarised()
        queries = [
            make_query(rng, 3, dim),
            replace(make_query(rng, 2, dim), global_probes=vectors[:1].astype(np.float32)),
        ]
        queries.append(replace(queries[0], global_weights=np.zeros_like(queries[0].global_weights)))
        found = resemblance(queries, bank, None, kernel).targets
        assert bank.block.outlines is not None
        for query, targets in zip(queries, found, strict=True):
            exact = bank.block.global_vectors.astype(np.float64) @ query.target.astype(np.float64) * query.target_weight
            lost = bank.block.outlines["lost"] * float(limit_of(query, bank.subspaces, 4).target_length)  # type: ignore[arg-type]
            assert (targets + lost >= exact).all()
            assert (targets <= exact + lost + 1e-3).all()
