"""The k best: order, ties, and int8 that answers as fp16 does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.score.compile import CompiledQuery
from tapr.search import plan
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.top_scores import best_of
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score_many
from tapr.search.topk import top_k, top_k_many
from tapr.store.block import Precision
from tests.search.banks import clustered_bank, make_query, random_bank, spiked_bank


def test_best_first_and_ties_in_gallery_order() -> None:
    scores = np.array([1, 3, 2, 3, 2, 2], np.float32)
    assert best_of(scores, 4).tolist() == [1, 3, 2, 4]
    assert best_of(scores, 99).tolist() == [1, 3, 2, 4, 5, 0]


def test_k_must_be_positive() -> None:
    bank = MemoryBank.of(np.eye(4)[:1], np.eye(4)[None, :2])
    with pytest.raises(BadInput, match="k must be at least 1"):
        top_k(make_query(np.random.default_rng(0), 1, 4), bank, 0)


def answers_as_if_all_had_been_scored(queries: list[CompiledQuery], bank: MemoryBank, k: int, kernel: Kernel) -> None:
    """A bank of both precisions must answer as its fp16 vectors alone would."""
    block = bank.block if bank.precision != "both" else replace(bank.block, local_codes=None)
    whole = MemoryBank(bank.card, "int8" if bank.precision == "int8" else "fp16", block, bank.rows)
    scored = score_many(queries, whole, kernel)
    for found, scores in zip(top_k_many(queries, bank, k, kernel), scored, strict=True):
        best = best_of(scores, k)
        np.testing.assert_array_equal(found.positions, best)
        np.testing.assert_array_equal(found.scores, scores[best])
        assert found.kernel == kernel.name


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["fp16", "both"])
def test_random_queries_are_answered_exactly(precision: Precision, count: int) -> None:
    rng = np.random.default_rng(1)
    bank = MemoryBank.of(*random_bank(rng, 300, 9, 64), precision)
    queries = [make_query(rng, int(rng.integers(0, 40)), 64) for _ in range(count)]
    answers_as_if_all_had_been_scored(queries, bank, 10, choose_kernel())
    # the cheaper reading is of use: most pictures are never read exactly
    read = [found.rescored for found in top_k_many(queries, bank, 10) if found.rescored is not None]
    assert not read or np.mean(read) < 100


@pytest.mark.parametrize("make", [random_bank, clustered_bank, spiked_bank])
@pytest.mark.parametrize("k", [1, 10, 50, 500])
@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
def test_look_alikes_and_true_ties(kernel: Kernel, make: object, k: int, precision: Precision) -> None:
    rng = np.random.default_rng(2)
    assert callable(make)
    globals_, locals_ = make(rng, 200, 16, 48)
    globals_[50:60], locals_[50:60] = globals_[3], locals_[3]  # true ties
    queries = [make_query(rng, 20, 48, near=near) for near in (None, locals_, locals_[:4])]
    bank = MemoryBank.of(globals_, locals_, precision, block_rows=64)
    answers_as_if_all_had_been_scored(queries, bank, k, kernel)
    for found in top_k_many(queries, bank, k, kernel):
        assert found.rescored is None or k <= found.rescored <= 200


@pytest.mark.parametrize("make", [clustered_bank, spiked_bank])
def test_a_reading_in_between_changes_no_answer(kernel: Kernel, make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes, then the coarse vectors of all that is left, then the vectors."""
    monkeypatch.setattr(plan, "MAX_PICTURES_SCORED_DIRECTLY", 0)
    rng = np.random.default_rng(11)
    assert callable(make)
    globals_, locals_ = make(rng, 200, 16, 48)
    bank = MemoryBank.of(globals_, locals_, "both", block_rows=64)
    answers_as_if_all_had_been_scored([make_query(rng, 20, 48), make_query(rng, 20, 48, near=locals_)], bank, 5, kernel)


@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
@pytest.mark.parametrize(("count", "dim"), [(1, 64), (49, 64), (3, 5), (2, 1)])
def test_odd_queries_and_banks(kernel: Kernel, count: int, dim: int, precision: Precision) -> None:
    rng = np.random.default_rng(6)
    globals_, locals_ = random_bank(rng, 120, count, dim)
    locals_[7] = 0
    query = make_query(rng, 30, dim)
    half = query.weights * (np.arange(30) % 2)
    queries = [
        query,
        make_query(rng, 0, dim),  # no factor but the target
        replace(query, weights=half.astype(np.float32)),  # probes of weight 0
        replace(query, weights=np.zeros(30, np.float32)),
        replace(query, global_weights=np.zeros(1, np.float32)),
        replace(query, weights=-query.weights, tau=0.005),
    ]
    rows = np.sort(rng.integers(0, 120, 110))  # dead rows, and rows of two pictures
    bank = MemoryBank.of(globals_, locals_, precision, rows, block_rows=50)
    answers_as_if_all_had_been_scored(queries, bank, 3, kernel)


def test_all_pictures_alike_come_in_gallery_order(kernel: Kernel) -> None:
    rng = np.random.default_rng(3)
    globals_, locals_ = random_bank(rng, 1, 9, 32)
    bank = MemoryBank.of(globals_.repeat(70, axis=0), locals_.repeat(70, axis=0), "both", block_rows=16)
    found = top_k(make_query(rng, 9, 32), bank, 4, kernel)
    assert found.positions.tolist() == list(range(4))
    assert found.rescored == 70


def test_an_int8_bank_says_that_it_is_approximate(kernel: Kernel) -> None:
    rng = np.random.default_rng(4)
    globals_, locals_ = random_bank(rng, 100, 9, 64)
    query = make_query(rng, 9, 64)
    found = top_k(query, MemoryBank.of(globals_, locals_, "int8"), 10, kernel)
    assert not found.exact
    assert found.rescored is None
    assert "int8 only" in found.notes[0]
    exact = top_k(query, MemoryBank.of(globals_, locals_), 10, kernel)
    assert len(set(found.positions) & set(exact.positions)) >= 8


def test_an_empty_bank_has_no_best(kernel: Kernel) -> None:
    query = make_query(np.random.default_rng(5), 3, 8)
    for precision in ("fp16", "int8", "both"):
        bank = MemoryBank.of(np.zeros((0, 8)), np.zeros((0, 2, 8)), precision)
        assert len(top_k(query, bank, 5, kernel).positions) == 0


def test_notes_do_not_depend_on_k() -> None:
    rng = np.random.default_rng(4)
    bank = MemoryBank.of(*clustered_bank(rng, 200, 5, 32), "int8")
    query = make_query(rng, 6, 32)
    few, many = top_k(query, bank, 3), top_k(query, bank, 60)
    assert few.notes != many.notes, "further down the list, scores can be farther from their fp16 values"
    assert many.first(3).notes == few.notes
    assert many.first(3).scores.tobytes() == few.scores.tobytes()
