"""Searching by stages: the answer of a full search where it is proven, and never a claim that is not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.errors import BadInput
from tapr.options import Budget, RankOptions
from tapr.score.compile import CompiledQuery
from tapr.score.definition import score as defined
from tapr.search.kernels.base import Kernel, Rows
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.stage import top_k_by_stages
from tapr.search.prefilter.summary import Subspaces, Summary
from tapr.search.sweep import score
from tapr.search.topk import TopK, top_k
from tapr.store.block import Precision
from tests.refusals import refused
from tests.search.banks import KERNELS, clustered_bank, make_query, random_bank, spiked_bank


@dataclass
class Fixed:
    """An engine that always finds the same, however bad."""

    rows: Rows

    def candidates(self, query: CompiledQuery, count: int) -> Rows:
        return self.rows[:count]


NOTHING, NUMPY = Fixed(np.zeros(0, np.int64)), NumpyKernel()


def summary_of(bank: MemoryBank, directions: int = 3) -> Summary:
    vectors = bank.block.decoded()
    return Summary.of(vectors, Subspaces.fitted(vectors[:30], directions), directions)


def staged(
    query: CompiledQuery,
    bank: MemoryBank,
    k: int,
    budget: Budget,
    engine: Fixed = NOTHING,
    kernel: Kernel = NUMPY,
) -> TopK:
    return top_k_by_stages(query, bank, k, summary_of(bank), engine, kernel, budget)


def is_the_full_answer(found: TopK, query: CompiledQuery, bank: MemoryBank, k: int, kernel: Kernel) -> None:
    right = top_k(query, bank, k, kernel)
    np.testing.assert_array_equal(found.positions, right.positions)
    np.testing.assert_array_equal(found.scores, right.scores)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
@pytest.mark.parametrize("make", [random_bank, clustered_bank, spiked_bank])
def test_exact_is_the_answer_of_a_full_search(kernel: Kernel, precision: Precision, make: object) -> None:
    rng = np.random.default_rng(1)
    assert callable(make)
    global_probes, parts = make(rng, 120, 6, 32)
    bank = MemoryBank.of(global_probes, parts, precision)
    for probes in (0, 1, 12):
        for k in (1, 7, 119, 500):
            query = make_query(rng, probes, 32, near=bank.block.decoded().astype(np.float32))
            worst = Fixed(np.argsort(score(query, bank, kernel))[:20].astype(np.int64))
            found = staged(query, bank, k, "exact", worst, kernel)
            assert found.proof is not None
            assert found.proof.proven
            assert found.exact == (precision != "int8")
            is_the_full_answer(found, query, bank, k, kernel)


def test_the_numpy_definition_ranks_the_same() -> None:
    rng = np.random.default_rng(2)
    bank = MemoryBank.of(*random_bank(rng, 200, 5, 24))
    query = make_query(rng, 9, 24)
    found = staged(query, bank, 10, "exact")
    right = defined(query, bank.block.global_vectors, bank.block.decoded())
    np.testing.assert_array_equal(found.positions, np.argsort(-right, kind="stable")[:10])
    np.testing.assert_allclose(found.scores, right[found.positions], atol=1e-6)


def test_the_worst_candidates_are_never_called_proven() -> None:
    """An engine that returns the worst pictures on purpose, and a budget that ends with them."""
    rng = np.random.default_rng(3)
    bank = MemoryBank.of(*random_bank(rng, 300, 6, 32))
    for _ in range(20):
        query = make_query(rng, 8, 32)
        order = np.argsort(score(query, bank), kind="stable").astype(np.int64)
        found = top_k_by_stages(query, bank, 10, summary_of(bank), Fixed(order), NumpyKernel(), 20)
        assert found.proof is not None
        right = top_k(query, bank, 10)
        assert found.proof.proven == (found.proof.open == 0)
        if found.positions.tolist() != right.positions.tolist():
            assert not found.proof.proven
            assert not found.exact
            assert "not proven" in found.notes[0]
            missed = np.setdiff1d(right.positions, found.positions)
            assert found.proof.open >= len(missed)


def test_a_picture_that_beats_all_and_that_the_engine_does_not_know() -> None:
    """Half of it is far from its mean: an index of means never finds it."""
    rng = np.random.default_rng(4)
    globals_, locals_ = random_bank(rng, 200, 8, 32)
    probe = unit(rng.standard_normal((1, 32)))
    locals_[77, :4], locals_[77, 4:] = probe, -probe
    query = replace(make_query(rng, 1, 32), probes=probe, weights=np.array([0.9], np.float32))
    bank = MemoryBank.of(globals_, locals_)
    assert top_k(query, bank, 1).positions.tolist() == [77]
    others = Fixed(np.delete(np.arange(200), 77))
    found = staged(query, bank, 1, "exact", others)
    assert found.positions.tolist() == [77]
    blind = top_k_by_stages(query, bank, 1, summary_of(bank), others, NumpyKernel(), 1)
    assert blind.proof is not None
    assert blind.positions.tolist() == [77] or not blind.proof.proven


def test_ties_keep_the_order_of_the_gallery() -> None:
    rng = np.random.default_rng(5)
    globals_, locals_ = random_bank(rng, 10, 4, 16)
    bank = MemoryBank.of(np.tile(globals_, (12, 1)), np.tile(locals_, (12, 1, 1)))
    query = make_query(rng, 5, 16)
    for k in (1, 5, 12, 13, 30):
        last = Fixed(np.arange(119, 60, -1))  # the later of equal pictures first
        is_the_full_answer(staged(query, bank, k, "exact", last), query, bank, k, NumpyKernel())


def test_pictures_that_share_a_row_or_are_filtered_out() -> None:
    rng = np.random.default_rng(6)
    bank = MemoryBank.of(*random_bank(rng, 100, 4, 16), rows=np.array([5, 5, 9, 60, 61, 62, 5, 99]))
    query = make_query(rng, 5, 16)
    summary = summary_of(bank)
    for k in (1, 3, 8, 20):
        for engine in (NOTHING, Fixed(np.array([1, 2, 9, 9, 5, 98]))):
            found = top_k_by_stages(query, bank, k, summary, engine, NumpyKernel(), "exact")
            is_the_full_answer(found, query, bank, k, NumpyKernel())
            assert found.proof is not None
            assert found.proof.pictures == 6
    empty = replace(bank, rows=np.zeros(0, np.int64))
    found = top_k_by_stages(query, empty, 3, summary, NOTHING, NumpyKernel(), "exact")
    assert len(found.positions) == 0


@pytest.mark.parametrize("budget", [1, 2, 50, 150, 9999])
def test_no_more_is_read_than_was_asked_for(budget: int) -> None:
    rng = np.random.default_rng(7)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16))
    found = staged(make_query(rng, 5, 16), bank, 3, budget, Fixed(np.arange(150)))
    assert found.proof is not None
    assert 1 <= found.proof.read <= min(budget, 150)
    assert found.proof.read + found.proof.open <= 150
    assert len(found.positions) == min(3, found.proof.read)


def test_remove_only_and_the_target_alone() -> None:
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*clustered_bank(rng, 150, 4, 16))
    query = make_query(rng, 5, 16)
    for weights in (-np.abs(query.weights), np.zeros_like(query.weights)):
        changed = replace(query, weights=weights)
        for whole in (query.global_weights, np.zeros_like(query.global_weights)):
            asked = replace(changed, global_weights=whole)
            is_the_full_answer(staged(asked, bank, 10, "exact"), asked, bank, 10, NumpyKernel())


def test_bounds_rule_out_most_where_pictures_look_alike_inside() -> None:
    rng = np.random.default_rng(9)
    centres = unit(rng.standard_normal((400, 32)))
    bank = MemoryBank.of(centres, unit(centres[:, None] + 0.02 * rng.standard_normal((400, 9, 32))))
    found = staged(make_query(rng, 4, 32), bank, 5, "exact")
    assert found.proof is not None
    assert found.proof.read <= 300  # the first lot, and hardly more


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "all", "0"])
def test_other_budgets_are_refused(value: object) -> None:
    with refused("bad_option", option="prefilter"):
        RankOptions.of(prefilter=value)


def test_a_summary_of_another_bank_is_refused() -> None:
    rng = np.random.default_rng(10)
    bank, other = (MemoryBank.of(*random_bank(rng, rows, 4, 16)) for rows in (30, 31))
    with pytest.raises(BadInput, match="not as many pictures as the gallery"):
        top_k_by_stages(make_query(rng, 2, 16), bank, 3, summary_of(other), NOTHING, NumpyKernel(), "exact")
    with pytest.raises(BadInput, match="k must be at least 1"):
        staged(make_query(rng, 2, 16), bank, 0, "exact")


class RemoteEncoder(MemoryBank):
    """A bank on other machines."""

    def top_k_many(self, queries: object, k: int) -> list[TopK]:
        raise AssertionError("nobody asks it")

    def histograms(self, targets: object) -> list[Rows]:
        raise AssertionError("nobody asks it")


def test_a_bank_on_other_machines_is_refused() -> None:
    bank = RemoteEncoder.of(*random_bank(np.random.default_rng(11), 30, 4, 16))
    with pytest.raises(BadInput, match="a first stage searches on one machine"):
        staged(make_query(np.random.default_rng(11), 2, 16), bank, 3, "exact")
