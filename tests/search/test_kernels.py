"""Every kernel against the definition, score/definition.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.score import definition as reference
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import CODES, VECTORS, Kernel
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.top_scores import best_of
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score, score_many
from tapr.store.block import Precision
from tapr.store.codec import rotation
from tapr.types import Float32
from tests.search.banks import clustered_bank, make_query, random_bank, spiked_bank

TOLERANCE = 2e-5  # METHOD asks for 1e-4


def expected(query: CompiledQuery, bank: MemoryBank) -> Float32:
    return reference.score(query, bank.block.global_vectors, bank.block.decoded()).astype(np.float32)


def agrees(kernel: Kernel, query: CompiledQuery, bank: MemoryBank) -> None:
    np.testing.assert_allclose(score(query, bank, kernel), expected(query, bank), rtol=0, atol=TOLERANCE)


PRECISIONS: tuple[Precision, ...] = ("fp16", "int8")
Make = Callable[[np.random.Generator, int, int, int], tuple[Float32, Float32]]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("make", [random_bank, clustered_bank])
@pytest.mark.parametrize(
    ("rows", "count", "dim", "probes"),
    [
        (70, 49, 512, 57),
        (130, 64, 64, 72),
        (33, 9, 37, 5),
        (5, 1, 32, 16),
        (9, 50, 129, 33),
        (3, 2, 1, 1),
        (1, 49, 96, 130),
    ],
)
def test_the_definition_holds(
    kernel: Kernel, make: Make, rows: int, count: int, dim: int, probes: int, precision: Precision
) -> None:
    bank, answers = defined(make, rows, count, dim, probes, precision)
    for query, right in answers:
        np.testing.assert_allclose(score(query, bank, kernel), right, rtol=0, atol=TOLERANCE)


@cache  # the definition takes much longer than a kernel, and says the same to each of them
def defined(
    make: Make, rows: int, count: int, dim: int, probes: int, precision: Precision
) -> tuple[MemoryBank, list[tuple[CompiledQuery, Float32]]]:
    rng = np.random.default_rng(rows)
    globals_, locals_ = make(rng, rows, count, dim)
    bank = MemoryBank.of(globals_, locals_, precision)
    queries = (make_query(rng, probes, dim), make_query(rng, probes, dim, near=locals_))
    return bank, [(query, expected(query, bank)) for query in queries]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tau", [0.005, 0.01, 0.02, 0.04, 0.08, 10.0])
def test_sharp_and_flat_softmax(kernel: Kernel, tau: float, precision: Precision) -> None:
    rng = np.random.default_rng(1)
    globals_, locals_ = random_bank(rng, 40, 49, 64)
    agrees(kernel, make_query(rng, 20, 64, tau, near=locals_), MemoryBank.of(globals_, locals_, precision))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_probes_that_are_in_the_picture_and_opposite_to_it(kernel: Kernel, precision: Precision) -> None:
    locals_ = np.eye(32, dtype=np.float32)[None, :20].repeat(3, axis=0)  # dot products of exactly 1, 0 and -1
    bank = MemoryBank.of(np.eye(32)[:3], locals_, precision)
    query = make_query(np.random.default_rng(2), 24, 32)
    agrees(kernel, replace(query, probes=np.concatenate([np.eye(32)[:12], -np.eye(32)[:12]]).astype(np.float32)), bank)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_all_local_vectors_equal(kernel: Kernel, precision: Precision) -> None:
    rng = np.random.default_rng(3)
    one = unit(rng.standard_normal(48))
    bank = MemoryBank.of(one[None].repeat(4, axis=0), np.broadcast_to(one, (4, 49, 48)), precision)
    agrees(kernel, make_query(rng, 17, 48), bank)
    constant = np.full((2, 7, 64), 1 / 8)  # every number the same: the largest whole sums that codes can reach
    same = replace(make_query(rng, 3, 64), probes=np.full((3, 64), 1 / 8, np.float32))
    agrees(kernel, same, MemoryBank.of(constant[:, 0], constant, precision))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dim", [512, 2048])
def test_the_largest_whole_sums_fit(kernel: Kernel, dim: int, precision: Precision) -> None:
    """Every code 127 and every number of a probe the same: no sum of products can be larger."""
    even = np.full(dim, dim**-0.5)
    level = even @ rotation(dim) if precision == "int8" else even
    bank = MemoryBank.of(level[None].repeat(2, axis=0), np.broadcast_to(level, (2, 3, dim)), precision)
    query = replace(make_query(np.random.default_rng(12), 2, dim), probes=np.stack([level, -level]).astype(np.float32))
    agrees(kernel, query, bank)
    exact = kernel.score([query], bank, kernel.levels(bank)[-1])[0]
    for reading in kernel.levels(bank):
        np.testing.assert_allclose(kernel.score([query], bank, reading)[0], exact, atol=0.01)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_zero_vectors_and_the_smallest_numbers(kernel: Kernel, precision: Precision) -> None:
    rng = np.random.default_rng(4)
    _, locals_ = random_bank(rng, 3, 5, 40)
    locals_[0] = 0
    locals_[1] *= 1e-6  # fp16 holds these with few bits
    query = make_query(rng, 6, 40)
    probes = query.probes.copy()
    probes[2] = 0
    agrees(kernel, replace(query, probes=probes), MemoryBank.of(np.zeros((3, 40)), locals_, precision))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_probes_leaves_the_target(kernel: Kernel, precision: Precision) -> None:
    rng = np.random.default_rng(5)
    bank = MemoryBank.of(*random_bank(rng, 12, 9, 37), precision)
    query = make_query(rng, 0, 37)
    agrees(kernel, query, bank)
    assert np.ptp(score(query, bank, kernel)) > 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_probe_of_weight_zero_changes_no_bit(kernel: Kernel, precision: Precision) -> None:
    rng = np.random.default_rng(6)
    bank = MemoryBank.of(*random_bank(rng, 20, 9, 37), precision)
    query = make_query(rng, 6, 37)
    longer = replace(
        query,
        probes=np.insert(query.probes, [0, 3], unit(rng.standard_normal((2, 37))), axis=0),
        weights=np.insert(query.weights, [0, 3], 0),
    )
    np.testing.assert_array_equal(score(longer, bank, kernel), score(query, bank, kernel))


def test_an_empty_block(kernel: Kernel) -> None:
    bank = MemoryBank.of(np.zeros((0, 8)), np.zeros((0, 3, 8)))
    assert score_many([make_query(np.random.default_rng(7), 2, 8)], bank, kernel).shape == (1, 0)


def test_no_query(kernel: Kernel) -> None:
    bank = MemoryBank.of(np.zeros((2, 8)), np.zeros((2, 3, 8)))
    assert score_many([], bank, kernel).shape == (0, 2)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dim", [100, 128])  # not a multiple of 64, and one that is read where it lies
def test_the_bits_of_a_score_do_not_depend_on_other_rows_and_queries(
    kernel: Kernel, dim: int, precision: Precision
) -> None:
    """Alone, among other queries, at another place of the block, as one of some rows: exact search rests on this."""
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*random_bank(rng, 150, 49, dim), precision, block_rows=100)
    queries = [make_query(rng, probes, dim, tau) for probes, tau in ((57, 0.02), (3, 0.01), (0, 0.02), (20, 0.05))]
    for level in kernel.levels(bank):
        together = kernel.score(queries, bank, level)
        for query, scores in zip(queries, together, strict=True):
            np.testing.assert_array_equal(kernel.score([query], bank, level)[0], scores)
            some = rng.permutation(150)[:41]
            moved = MemoryBank(bank.card, precision, bank.gather(some), np.arange(41))
            np.testing.assert_array_equal(kernel.score([query], moved, level)[0], scores[some])
            for rows in (np.sort(some), np.arange(30, 90), np.arange(120, 150), np.array([149])):
                np.testing.assert_array_equal(kernel.score([query], bank, level, rows)[0], scores[rows])


@pytest.mark.parametrize("make", [random_bank, clustered_bank, spiked_bank])
@pytest.mark.parametrize("tau", [0.005, 0.02, 0.08])
def test_a_cheaper_reading_stays_within_its_radius(kernel: Kernel, make: object, tau: float) -> None:
    rng = np.random.default_rng(10)
    assert callable(make)
    for count, dim, probes in ((49, 128, 57), (1, 64, 8), (16, 48, 20), (9, 37, 16)):
        globals_, locals_ = make(rng, 60, count, dim)
        bank = MemoryBank.of(globals_, locals_, "both")
        assert bank.block.local_errors is not None
        errors = bank.block.local_errors.max(axis=1)
        views = [MemoryBank(bank.card, precision, bank.block, bank.rows) for precision in ("fp16", "int8", "both")]
        levels = {level for view in views for level in kernel.levels(view)}
        for query in (make_query(rng, probes, dim, tau), make_query(rng, probes, dim, tau, near=locals_)):
            exact = kernel.score([query], bank, VECTORS)[0].astype(np.float64)
            for level in levels - {VECTORS}:
                found = kernel.score([query], bank, level)[0]
                within = radius(query, kernel, level, VECTORS, errors, count)
                assert (np.abs(found - exact) <= within).all()
                if level.codes and level.coarse:  # as far as codes read in full are concerned, much closer
                    full = kernel.score([query], bank, CODES)[0].astype(np.float64)
                    assert (np.abs(found - full) <= radius(query, kernel, level, CODES, errors, count)).all()


def test_numbers_half_way_between_two_multiples(kernel: Kernel) -> None:
    """All that a coarse reading by whole multiples of 2^-14 can lose, and in one direction."""
    dim = 512
    signs = np.random.default_rng(13).choice([-1.0, 1.0], dim)
    half_way = 724.5 * 2.0**-14 * signs  # length 1.0006
    bank = MemoryBank.of(half_way[None], half_way[None, None].repeat(9, axis=1))
    probes = np.stack([signs, -signs]).astype(np.float32) * np.float32(dim**-0.5)
    query = replace(make_query(np.random.default_rng(14), 2, dim), probes=probes)
    exact = kernel.score([query], bank, VECTORS)[0]
    for level in kernel.levels(bank):
        within = radius(query, kernel, level, VECTORS, np.zeros(1, np.float32), 9)
        assert (np.abs(kernel.score([query], bank, level)[0] - exact) <= within).all()


def test_the_same_top_50_as_the_definition(kernel: Kernel) -> None:
    rng = np.random.default_rng(9)
    for make in (random_bank, clustered_bank):
        globals_, locals_ = make(rng, 400, 16, 64)
        bank = MemoryBank.of(globals_, locals_)
        query = make_query(rng, 24, 64, near=locals_)
        exact = expected(query, bank)
        ours = best_of(score(query, bank, kernel), 50)
        # up to ties: what stands at each rank scores what the definition has at that rank
        np.testing.assert_allclose(exact[ours], exact[best_of(exact, 50)], rtol=0, atol=TOLERANCE)
