"""A gallery in parts, searched in two rounds: the answer of one search, and floors that rule out what others beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tapr.cluster.merge import GroupResult, merge, merged_proof, shares_of
from tapr.encoders.base import unit
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search import plan
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.match import candidates_of, top_k_by_summaries
from tapr.search.memory_bank import MemoryBank
from tapr.search.prune import Known, floor_of
from tapr.search.sweep import score
from tapr.search.topk import TopK, top_k_many
from tapr.store.block import Precision
from tests.search.banks import KERNELS, clustered_bank, make_query, random_bank

NUMPY = NumpyKernel()


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_LEADERS", 3)
    monkeypatch.setattr(plan, "SMALLEST_BATCH", 5)


def parts_of(bank: MemoryBank, cuts: Sequence[int]) -> list[MemoryBank]:
    return [replace(bank, rows=bank.rows[start:stop]) for start, stop in zip((0, *cuts), (*cuts, None), strict=True)]


def in_rounds(
    queries: Sequence[CompiledQuery],
    parts: Sequence[MemoryBank],
    k: int,
    kernel: Kernel = NUMPY,
    budgets: Sequence[Budget] | None = None,
    budget_ms: float | None = None,
) -> list[TopK]:
    most = budgets or ["exact"] * len(parts)
    found = [candidates_of(queries, part, k, kernel, n) for part, n in zip(parts, most, strict=True)]
    floors = [floor_of([one[q] for one in found], k) for q in range(len(queries))]
    answers = [
        top_k_by_summaries(queries, part, k, kernel, n, budget_ms, list(map(Known, one, floors)))
        for part, one, n in zip(parts, found, most, strict=True)
    ]
    starts = np.cumsum([0, *map(len, parts)])
    return [
        merge(
            [
                GroupResult(one[q].positions + start, one[q].scores, one[q].radii, None, one[q].proof)
                for start, one in zip(starts, answers, strict=False)
            ],
            k,
            [kernel.name],
            parts[0].precision != "int8",
        )
        for q in range(len(queries))
    ]


def is_the_full_answer(found: TopK, right: TopK) -> None:
    assert found.proof is not None
    assert found.proof.proven
    np.testing.assert_array_equal(found.positions, right.positions)
    assert found.scores.tobytes() == right.scores.tobytes()
    assert found.exact == right.exact


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
def test_exact_is_the_answer_of_a_full_search(kernel: Kernel, precision: Precision) -> None:
    rng = np.random.default_rng(1)
    for make in (random_bank, clustered_bank):
        bank = MemoryBank.of(*make(rng, 150, 5, 32), precision).summarised()
        queries = [make_query(rng, probes, 32) for probes in (9, 0, 3)]
        for k in (1, 7, 40, 149, 500):  # a part has fewer than 40
            for found, right in zip(
                in_rounds(queries, parts_of(bank, (2, 2, 40, 120)), k, kernel),
                top_k_many(queries, bank, k, kernel),
                strict=True,
            ):
                is_the_full_answer(found, right)


def test_ties_at_the_floor_keep_the_order_of_the_gallery() -> None:
    rng = np.random.default_rng(5)
    globals_, locals_ = random_bank(rng, 10, 4, 16)
    bank = MemoryBank.of(np.tile(globals_, (12, 1)), np.tile(locals_, (12, 1, 1))).summarised()
    queries = [make_query(rng, 5, 16) for _ in range(3)]
    for kernel in KERNELS:
        for k in (1, 5, 12, 13, 30):
            for found, right in zip(
                in_rounds(queries, parts_of(bank, (7, 55)), k, kernel),
                top_k_many(queries, bank, k, kernel),
                strict=True,
            ):
                is_the_full_answer(found, right)


def test_pictures_that_share_a_row_or_are_filtered_out() -> None:
    rng = np.random.default_rng(6)
    whole = MemoryBank.of(*random_bank(rng, 100, 4, 16)).summarised()
    bank = replace(whole, rows=np.array([5, 5, 5, 9, 60, 61, 62, 62, 99]))
    queries = [make_query(rng, 5, 16)]
    for k in (1, 2, 3, 8, 20):
        (found,), (right,) = in_rounds(queries, parts_of(bank, (3, 4, 4)), k), top_k_many(queries, bank, k, NUMPY)
        is_the_full_answer(found, right)
        assert found.proof is not None
        assert found.proof.pictures == 6


def test_a_part_without_any_picture_above_the_floor_reads_only_its_candidates() -> None:
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((200, 1, 32))
    places = unit(centres + 0.4 * rng.standard_normal((200, 5, 32)))
    bank = MemoryBank.of(unit(centres[:, 0]), places).summarised()
    query = make_query(rng, 6, 32)
    bank = replace(bank, rows=np.argsort(-score(query, bank)))  # the first part has all that is good
    good, bad = (replace(part, rows=np.sort(part.rows)) for part in parts_of(bank, (100,)))
    own, others = candidates_of([query], bad, 4, NUMPY), candidates_of([query], good, 4, NUMPY)
    floor = floor_of([own[0], others[0]], 4)
    (alone,) = top_k_by_summaries([query], bad, 4, NUMPY)
    (told,) = top_k_by_summaries([query], bad, 4, NUMPY, known=[Known(own[0], floor)])
    assert len(told.positions) == 0
    assert told.proof == Proof(len(own[0].rows), 0, 100)
    assert alone.proof is not None
    assert alone.proof.read > told.proof.read


def test_no_more_is_read_than_was_asked_for_and_no_claim_is_wrong() -> None:
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16)).summarised()
    proven = 0
    for most in (1, 2, 5, 40, 149, 150, 999):
        query = make_query(rng, 5, 16)
        parts = parts_of(bank, (10, 90))
        (found,) = in_rounds([query], parts, 3, budgets=shares_of(most, [len(part) for part in parts]))
        assert found.proof is not None
        assert found.proof.read <= min(most, 150)
        assert len(found.positions) == min(3, found.proof.read)
        (right,) = top_k_many([query], bank, 3, NUMPY)
        if found.proof.proven:
            is_the_full_answer(found, right)
            proven += 1
        else:
            assert not found.exact
            assert "not proven" in found.notes[0]
            assert found.radii is None
    assert proven


def test_when_the_time_is_over_the_candidates_are_the_answer() -> None:
    rng = np.random.default_rng(9)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16)).summarised()
    query = make_query(rng, 5, 16)
    (found,) = in_rounds([query], parts_of(bank, (10, 90)), 3, budget_ms=0.0)
    assert found.proof is not None
    assert (found.proof.read, found.proof.open) == (10 + 12 + 12, 150 - 34)
    np.testing.assert_array_equal(found.scores, score(query, bank, NUMPY)[found.positions])
    assert len(found.positions) == 3


def test_a_limit_is_shared_out_by_pictures_and_never_exceeded() -> None:
    assert shares_of(10, [50, 30, 20]) == [5, 3, 2]
    rng = np.random.default_rng(10)
    for _ in range(200):
        pictures = rng.integers(1, 1000, rng.integers(1, 9)).tolist()
        most = int(rng.integers(1, 3000))
        shares = shares_of(most, pictures)
        assert sum(shares) == most
        for share, own in zip(shares, pictures, strict=True):
            assert abs(share - most * own / sum(pictures)) < 1


def test_proofs_add_up_and_what_was_not_searched_is_not_ruled_out() -> None:
    proofs = [Proof(3, 0, 10), Proof(4, 0, 20)]
    assert merged_proof(proofs, 0) == Proof(7, 0, 30)
    assert merged_proof(proofs, 5) == Proof(7, 5, 35)
    assert not Proof(7, 5, 35).proven
    assert merged_proof([*proofs, Proof(1, 2, 3)], 0) == Proof(8, 2, 33)
    assert merged_proof([None, None], 5) is None
