"""A search by summaries has the answer of a full search where it is proven, and never claims what is not.

How pruning ends, with limits and without, is tested with arrays in tests/search/test_prune.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.errors import BadInput
from tapr.options import Budget, RankOptions
from tapr.score.compile import CompiledQuery
from tapr.score.definition import score as defined
from tapr.search import plan
from tapr.search.kernels.base import Kernel, Rows
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.kernels.sketch import sketches_of
from tapr.search.match import match, top_k_by_summaries
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import Resemblance, resemblance
from tapr.search.stages import job, summaries
from tapr.search.stages.scan import Scan
from tapr.search.sweep import score
from tapr.search.topk import TopK, top_k
from tapr.store.block import Precision
from tapr.types import Float32
from tests.refusals import refused
from tests.search.banks import KERNELS, clustered_bank, like_this, make_query, near_bank, random_bank, spiked_bank

NUMPY = NumpyKernel()
Promise = Callable[[CompiledQuery], Any]  # of each row: what the candidates are chosen by
UsePromise = Callable[[Promise], None]


@pytest.fixture
def promising(monkeypatch: pytest.MonkeyPatch) -> UsePromise:
    """Candidates by another order, however bad, and few at a time."""

    def use(promise: Promise) -> None:
        def found(queries: Sequence[CompiledQuery], bank: MemoryBank, rows: Rows | None, kernel: Kernel) -> Resemblance:
            chosen = slice(None) if rows is None else rows
            order = np.stack([promise(query)[chosen] for query in queries]).astype(np.float32)
            return Resemblance(order, resemblance(queries, bank, rows, kernel).targets)

        monkeypatch.setattr(summaries, "resemblance", found)
        monkeypatch.setattr(plan, "MIN_LEADERS", 3)
        monkeypatch.setattr(plan, "SMALLEST_BATCH", 5)

    return use


def staged(
    query: CompiledQuery, bank: MemoryBank, k: int, budget: Budget, kernel: Kernel = NUMPY, ms: float | None = None
) -> TopK:
    (found,) = top_k_by_summaries([query], bank, k, kernel, budget, ms)
    return found


def is_the_full_answer(found: TopK, query: CompiledQuery, bank: MemoryBank, k: int, kernel: Kernel) -> None:
    right = top_k(query, bank, k, kernel)
    np.testing.assert_array_equal(found.positions, right.positions)
    np.testing.assert_array_equal(found.scores, right.scores)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
@pytest.mark.parametrize("make", [random_bank, clustered_bank, spiked_bank])
def test_exact_is_the_answer_of_a_full_search(
    kernel: Kernel, precision: Precision, make: Any, promising: UsePromise
) -> None:
    rng = np.random.default_rng(1)
    global_vectors, local_vectors = make(rng, 120, 6, 32)
    bank = MemoryBank.of(global_vectors, local_vectors, precision).summarised()
    promising(lambda query: -score(query, bank, kernel))  # the worst first
    for probes in (0, 1, 12):
        for k in (1, 7, 119, 500):
            query = make_query(rng, probes, 32, near=bank.block.decoded().astype(np.float32))
            found = staged(query, bank, k, "exact", kernel)
            assert found.proof is not None
            assert found.proof.proven
            assert found.exact == (precision != "int8")
            is_the_full_answer(found, query, bank, k, kernel)


def test_several_queries_in_one_sweep_are_answered_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SUMMARIES_PER_PIECE", 37)
    rng = np.random.default_rng(2)
    bank = MemoryBank.of(*clustered_bank(rng, 300, 5, 24)).summarised()
    queries = [make_query(rng, probes, 24) for probes in (9, 0, 3, 30)]
    for kernel in KERNELS:
        for found, query in zip(top_k_by_summaries(queries, bank, 10, kernel), queries, strict=True):
            is_the_full_answer(found, query, bank, 10, kernel)


def test_what_lies_on_a_disk_is_asked_for_once_and_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(22)
    bank = MemoryBank.of(*clustered_bank(rng, 300, 5, 24)).summarised()
    query, events = make_query(rng, 9, 24), []
    monkeypatch.setattr(plan, "SUMMARIES_PER_PIECE_ON_DISK", 70)
    monkeypatch.setattr(job, "are_in_memory", lambda *_: False)
    bounded = highest

    def noted(*given: Any, **named: Any) -> Any:
        events.append(("read", *given[2].tolist()))
        return bounded(*given, **named)

    def asked(arrays: Any, _: Any, rows: Rows) -> None:
        assert bank.block.outlines is not None
        if arrays[0].dtype == bank.block.outlines.dtype:
            events.append(("ask", *rows.tolist()))

    monkeypatch.setattr(summaries, "highest", noted)
    monkeypatch.setattr(job, "read_ahead", asked)
    is_the_full_answer(staged(query, bank, 3, "exact"), query, bank, 3, NUMPY)
    there: set[int] = set()
    for what, *rows in events:
        assert there.isdisjoint(rows) if what == "ask" else there.issuperset(rows), (what, rows)
        there.update(rows)
    assert there == set(range(300))
    assert [what for what, *rows in events if rows] == ["ask", "ask", "read", *["ask", "read"] * 3, "read"]


def test_the_numpy_definition_ranks_the_same() -> None:
    rng = np.random.default_rng(2)
    bank = MemoryBank.of(*random_bank(rng, 200, 5, 24)).summarised()
    query = make_query(rng, 9, 24)
    found = staged(query, bank, 10, "exact")
    right = defined(query, bank.block.global_vectors, bank.block.decoded())
    np.testing.assert_array_equal(found.positions, np.argsort(-right, kind="stable")[:10])
    np.testing.assert_allclose(found.scores, right[found.positions], atol=1e-6)


def test_the_worst_candidates_are_never_called_proven(promising: UsePromise) -> None:
    """Candidates that are the worst pictures on purpose, and a budget that ends with them."""
    rng = np.random.default_rng(3)
    bank = MemoryBank.of(*random_bank(rng, 300, 6, 32)).summarised()
    promising(lambda query: -score(query, bank))
    missed = 0
    for _ in range(20):
        query = make_query(rng, 8, 32)
        found, right = staged(query, bank, 10, 12), top_k(query, bank, 10)
        assert found.proof is not None
        assert found.proof.proven == (found.proof.open == 0)
        if found.positions.tolist() != right.positions.tolist():
            missed += 1
            assert not found.proof.proven
            assert not found.exact
            assert "not proven" in found.notes[0]
            assert found.proof.open >= len(np.setdiff1d(right.positions, found.positions))
    assert missed


def test_a_picture_that_beats_all_and_whose_mean_tells_nothing(promising: UsePromise) -> None:
    rng = np.random.default_rng(4)
    globals_, locals_ = random_bank(rng, 200, 8, 32)
    probe = unit(rng.standard_normal((1, 32)))
    locals_[77, :4], locals_[77, 4:] = probe, -probe
    query = replace(make_query(rng, 1, 32), probes=probe, weights=np.array([0.9], np.float32))
    bank = MemoryBank.of(globals_, locals_).summarised()
    assert top_k(query, bank, 1).positions.tolist() == [77]
    promising(lambda _: np.where(np.arange(200) == 77, -1, 0))
    assert staged(query, bank, 1, "exact").positions.tolist() == [77]
    blind = staged(query, bank, 1, 1)
    assert blind.proof is not None
    assert not blind.proof.proven


@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
def test_a_sketch_of_the_reference_rules_out_before_pictures_are_scored(
    precision: Precision, promising: UsePromise, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(16)
    query = like_this(rng, 64)
    held = near_bank(rng, 400, 20, 64, query).block
    bank = MemoryBank.of(held.global_vectors, held.decoded(), precision).summarised()
    scored: list[int] = []
    score_them = Scan.score

    def noted(scan: Scan, rows: Sequence[Rows]) -> list[Float32]:
        scored.extend(map(len, rows))
        return score_them(scan, rows)

    monkeypatch.setattr(Scan, "score", noted)
    for kernel in [kernel for kernel in KERNELS if kernel.sketcher]:
        promising(lambda one, kernel=kernel: -score(one, bank, kernel))  # type: ignore[misc]
        counts = []
        for sketches in (sketches_of, lambda queries: None):
            monkeypatch.setattr(plan, "sketches_of", sketches)
            scored.clear()
            found = [staged(query, bank, k, "exact", kernel) for k in (1, 7, 300)]
            counts.append(sum(scored))
            for answer, k in zip(found, (1, 7, 300), strict=True):
                is_the_full_answer(answer, query, bank, k, kernel)
        assert counts[0] < counts[1]


def test_when_the_time_is_over_the_candidates_are_the_answer() -> None:
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16)).summarised()
    queries = [make_query(rng, 5, 16), make_query(rng, 2, 16)]
    for found in top_k_by_summaries(queries, bank, 3, NUMPY, budget_ms=0.0):
        assert found.proof is not None
        assert (found.proof.read, found.proof.open) == (128, 22)
        assert not found.exact


def test_bounds_rule_out_most_where_pictures_look_alike_inside(promising: UsePromise) -> None:
    rng = np.random.default_rng(9)
    centres = unit(rng.standard_normal((400, 32)))
    bank = MemoryBank.of(centres, unit(centres[:, None] + 0.02 * rng.standard_normal((400, 9, 32)))).summarised()
    query = make_query(rng, 4, 32)
    promising(lambda _: score(query, bank))
    found = staged(query, bank, 5, "exact")
    assert found.proof is not None
    assert found.proof.read <= 40


def test_where_all_places_look_alike_candidates_are_ranked_by_their_scores() -> None:
    rng = np.random.default_rng(1)
    places = unit(rng.standard_normal((30, 1, 64)))
    bank = MemoryBank.of(unit(rng.standard_normal((30, 64))), np.repeat(places, 5, axis=1)).summarised()
    query = make_query(rng, 6, 64)
    for kernel in KERNELS:
        (found,) = resemblance([query], bank, None, kernel).promise
        assert np.corrcoef(found, score(query, bank))[0, 1] > 0.999
        some = np.array([2, 3, 29])
        np.testing.assert_allclose(resemblance([query], bank, some, kernel).promise[0], found[some], rtol=1e-6)


def test_a_first_stage_is_used_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    plain = MemoryBank.of(*random_bank(rng, 300, 4, 16))
    bank, query = plain.summarised(), make_query(rng, 5, 16)
    compiled = [kernel for kernel in KERNELS if kernel.name.startswith("cpu-")]
    for kernel in (NUMPY, *compiled[:1]):
        assert match([query], bank, 3, kernel)[0].proof is None  # too few pictures
        with monkeypatch.context() as patched:
            patched.setattr(plan, "WORTH", 100)
            found = match([query], bank, 3, kernel)[0]
            assert (found.proof is not None) == (kernel is not NUMPY)
            is_the_full_answer(found, query, bank, 3, kernel)
            assert match([query], bank, 30, kernel)[0].proof is None  # too many wanted
            assert match([query], plain, 3, kernel)[0].proof is None
    with refused("no_prefilter", "tapr first-stage"):
        match([query], plain, 3, NUMPY, "exact")
    with refused("no_prefilter", "tapr first-stage"):
        match([query], plain, 3, NUMPY, budget_ms=5)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "all", "0"])
def test_other_budgets_are_refused(value: object) -> None:
    with refused("bad_option", option="prefilter"):
        RankOptions.of(prefilter=value)
    with refused("bad_option", option="budget_ms"):
        RankOptions.of(budget_ms=-1.0)
    with pytest.raises(BadInput, match="k must be at least 1"):
        top_k_by_summaries([], MemoryBank.of(*random_bank(np.random.default_rng(1), 3, 1, 2)), 0, NUMPY)


class RemoteBank(MemoryBank):
    """A bank on other machines, which notes what it is asked."""

    def top_k_many(self, queries: object, k: int, *limits: object) -> list[TopK]:
        raise Asked(k, *limits)

    def histograms(self, targets: object) -> list[Rows]:
        raise AssertionError("nobody asks it")


class Asked(Exception): ...


def test_a_bank_on_other_machines_is_told_the_limits() -> None:
    rng = np.random.default_rng(11)
    bank, query = RemoteBank.of(*random_bank(rng, 30, 4, 16)), make_query(rng, 2, 16)
    for limits in ((None, None), ("exact", None), (7, None), (None, 5.0)):
        with pytest.raises(Asked) as asked:
            match([query], bank, 3, NUMPY, *limits)
        assert asked.value.args == (3, *limits)
    with pytest.raises(BadInput, match="k must be at least 1"):
        match([query], bank, 0, NUMPY, "exact")
