"""Searching by stages: the answer of a full search where it is proven, and never a claim that is not."""

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
from tapr.search import match as matching
from tapr.search.kernels.base import Kernel, Rows
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.kernels.sketch import SketchingKernel
from tapr.search.match import match
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter import stage, staged_search
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import Resemblance, resemblance
from tapr.search.prefilter.rounds import Known
from tapr.search.prefilter.staged_search import StagedSearch
from tapr.search.sweep import score
from tapr.search.topk import TopK, top_k
from tapr.store.block import Precision
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

        monkeypatch.setattr(staged_search, "resemblance", found)
        monkeypatch.setattr(staged_search, "_CANDIDATES", 3)
        monkeypatch.setattr(staged_search, "_BATCH", 5)

    return use


def staged(
    query: CompiledQuery, bank: MemoryBank, k: int, budget: Budget, kernel: Kernel = NUMPY, ms: float | None = None
) -> TopK:
    (found,) = stage.top_k_by_stages([query], bank, k, kernel, budget, ms)
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
    monkeypatch.setattr(staged_search, "PIECE", 37)
    rng = np.random.default_rng(2)
    bank = MemoryBank.of(*clustered_bank(rng, 300, 5, 24)).summarised()
    queries = [make_query(rng, probes, 24) for probes in (9, 0, 3, 30)]
    for kernel in KERNELS:
        for found, query in zip(stage.top_k_by_stages(queries, bank, 10, kernel), queries, strict=True):
            is_the_full_answer(found, query, bank, 10, kernel)


def test_what_lies_on_a_disk_is_asked_for_once_and_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(22)
    bank = MemoryBank.of(*clustered_bank(rng, 300, 5, 24)).summarised()
    query, events = make_query(rng, 9, 24), []
    monkeypatch.setattr(staged_search, "_FROM_DISK", 70)
    monkeypatch.setattr(staged_search, "are_in_memory", lambda *_: False)
    bounded = highest

    def noted(*given: Any, **named: Any) -> Any:
        events.append(("read", *given[2].tolist()))
        return bounded(*given, **named)

    def asked(arrays: Any, _: Any, rows: Rows) -> None:
        assert bank.block.outlines is not None
        if arrays[0].dtype == bank.block.outlines.dtype:
            events.append(("ask", *rows.tolist()))

    monkeypatch.setattr(staged_search, "highest", noted)
    monkeypatch.setattr(staged_search, "read_ahead", asked)
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


def test_ties_keep_the_order_of_the_gallery(promising: UsePromise) -> None:
    rng = np.random.default_rng(5)
    globals_, locals_ = random_bank(rng, 10, 4, 16)
    bank = MemoryBank.of(np.tile(globals_, (12, 1)), np.tile(locals_, (12, 1, 1))).summarised()
    query = make_query(rng, 5, 16)
    promising(lambda _: np.arange(120))  # the later of equal pictures first
    for k in (1, 5, 12, 13, 30):
        is_the_full_answer(staged(query, bank, k, "exact"), query, bank, k, NUMPY)


@pytest.mark.parametrize("precision", ["fp16", "both", "int8"])
def test_a_sketch_of_the_reference_rules_out_before_pictures_are_scored(
    precision: Precision, promising: UsePromise, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(16)
    query = like_this(rng, 64)
    held = near_bank(rng, 400, 20, 64, query).block
    bank = MemoryBank.of(held.global_vectors, held.decoded(), precision).summarised()
    scored: list[int] = []
    score_them, sketch_them = StagedSearch._score, StagedSearch._sketch

    def noted(search: Any, chosen: Rows) -> None:
        scored.append(len(chosen))
        score_them(search, chosen)

    monkeypatch.setattr(StagedSearch, "_score", noted)
    for kernel in [kernel for kernel in KERNELS if isinstance(kernel, SketchingKernel)]:
        promising(lambda one, kernel=kernel: -score(one, bank, kernel))  # type: ignore[misc]
        counts = []
        for sketch in (sketch_them, lambda search, chosen: None):
            monkeypatch.setattr(StagedSearch, "_sketch", sketch)
            scored.clear()
            for k in (1, 7, 300):
                is_the_full_answer(staged(query, bank, k, "exact", kernel), query, bank, k, kernel)
            counts.append(sum(scored))
        assert counts[0] < counts[1]


def test_pictures_that_share_a_row_or_are_filtered_out(promising: UsePromise) -> None:
    rng = np.random.default_rng(6)
    whole = MemoryBank.of(*random_bank(rng, 100, 4, 16)).summarised()
    bank = replace(whole, rows=np.array([5, 5, 9, 60, 61, 62, 5, 99]))
    query = make_query(rng, 5, 16)
    for k in (1, 3, 8, 20):
        found = staged(query, bank, k, "exact")
        is_the_full_answer(found, query, bank, k, NUMPY)
        assert found.proof is not None
        assert found.proof.pictures == 6
    promising(lambda _: np.arange(100))
    is_the_full_answer(staged(query, bank, 2, "exact"), query, bank, 2, NUMPY)
    empty = replace(bank, rows=np.zeros(0, np.int64))
    assert len(staged(query, empty, 3, "exact").positions) == 0


@pytest.mark.parametrize("budget", [1, 2, 50, 150, 9999])
def test_no_more_is_read_than_was_asked_for(budget: int) -> None:
    rng = np.random.default_rng(7)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16)).summarised()
    found = staged(make_query(rng, 5, 16), bank, 3, budget)
    assert found.proof is not None
    assert 1 <= found.proof.read <= min(budget, 150)
    assert found.proof.read + found.proof.open <= 150
    assert len(found.positions) == min(3, found.proof.read)


def test_when_the_time_is_over_the_rest_counts_as_open(promising: UsePromise, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by a second at every look: what was not bounded by then is not ruled out."""
    rng = np.random.default_rng(8)
    places = unit(rng.standard_normal((150, 1, 16)) + 0.1 * rng.standard_normal((150, 4, 16)))
    bank = MemoryBank.of(unit(rng.standard_normal((150, 16))), places).summarised()
    query = make_query(rng, 5, 16)
    right = score(query, bank)
    monkeypatch.setattr(staged_search, "_FIRST", 20)
    for promised in (right, -right):
        promising(lambda _, promised=promised: promised)  # type: ignore[misc]
        answers = []
        for seconds in (0.5, 2.5, 1000):
            clock = iter(range(10_000))
            for module in (stage, staged_search):
                monkeypatch.setattr(module, "monotonic", lambda clock=clock: float(next(clock)))
            answers.append(staged(query, bank, 3, "exact", ms=1000 * seconds))
        proofs = [answer.proof for answer in answers if answer.proof is not None]
        assert [proof.proven for proof in proofs] == [False, False, True]
        assert (proofs[0].read, proofs[0].open) == (12, 138)  # the candidates alone
        assert proofs[1].read == 12
        assert 138 - 20 <= proofs[1].open <= 138  # one piece was bounded, and nothing of it read
        is_the_full_answer(answers[2], query, bank, 3, NUMPY)


def test_where_time_is_limited_the_most_promising_are_looked_at_first(
    promising: UsePromise, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(18)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16)).summarised()
    query = make_query(rng, 5, 16)
    promise = rng.permutation(150)
    promising(lambda _: promise)
    monkeypatch.setattr(staged_search, "_FIRST", 20)
    pieces = []
    looked_at = StagedSearch.bound

    def noted(search: Any, piece: Rows) -> None:
        pieces.append(piece)
        looked_at(search, piece)

    monkeypatch.setattr(StagedSearch, "bound", noted)
    is_the_full_answer(staged(query, bank, 3, "exact", ms=1e6), query, bank, 3, NUMPY)
    assert [len(piece) for piece in pieces] == [20, 40, 78]  # after 12 candidates
    assert (np.diff(pieces[0]) > 0).all()
    assert promise[pieces[0]].min() > promise[pieces[1]].max()
    assert promise[pieces[1]].min() > promise[pieces[2]].max()


def test_no_more_is_looked_at_than_seems_to_fit(promising: UsePromise, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture takes a second: the last piece is as large as the time that is left."""
    rng = np.random.default_rng(20)
    bank = MemoryBank.of(*random_bank(rng, 150, 4, 16)).summarised()
    promising(lambda _: rng.permutation(150))
    now, pieces = [0.0], []

    def bound(_: Any, piece: Rows) -> None:
        pieces.append(len(piece))
        now[0] += len(piece)

    monkeypatch.setattr(StagedSearch, "bound", bound)
    monkeypatch.setattr(StagedSearch, "read", lambda *_: None)
    monkeypatch.setattr(staged_search, "_FIRST", 20)
    monkeypatch.setattr(staged_search, "_SMALLEST", 4)
    for module in (stage, staged_search):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    found = staged(make_query(rng, 5, 16), bank, 3, "exact", ms=1000 * 75.0)
    assert pieces == [20, 40, 15]
    assert found.proof is not None
    assert found.proof.open == 138  # a bound that was never made rules nothing out
    pieces.clear()
    staged(make_query(rng, 5, 16), bank, 3, "exact", ms=1000 * 61.0)
    assert pieces == [20, 40, 4]


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_the_most_promising_come_first_of_many_too(
    promising: UsePromise, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """More pictures than are ordered: a part of them says which; with many alike, or promise in the gallery's order."""
    rng = np.random.default_rng(21)
    bank = MemoryBank.of(*clustered_bank(rng, 300, 4, 16)).summarised()
    query = make_query(rng, 5, 16)
    monkeypatch.setattr(staged_search, "PIECE", 37)
    for promise in (np.arange(300) // step, -(np.arange(300) // step), rng.integers(0, 300, 300) // step):
        promising(lambda _, promise=promise: promise)  # type: ignore[misc]
        (search,) = staged_search.searches_of([query], bank, 3, NUMPY, "exact")
        search.read_best()
        first = search.scored().rows
        assert promise[first].min() >= np.sort(promise)[-12]
        order = search._by_promise()
        np.testing.assert_array_equal(np.sort(np.concatenate([first, order])), np.arange(300))
        some = len(search._promising) - len(first)
        assert (np.diff(promise[order[:some]]) <= 0).all()
        assert (np.diff(order[some:]) > 0).all()
        assert promise[order[some:]].max(initial=-1000) < promise[search._promising].min()
        is_the_full_answer(staged(query, bank, 3, "exact", ms=1e6), query, bank, 3, NUMPY)


def test_a_floor_from_elsewhere_rules_out_too(promising: UsePromise) -> None:
    rng = np.random.default_rng(19)
    bank = MemoryBank.of(*clustered_bank(rng, 300, 4, 16)).summarised()
    queries = [make_query(rng, 5, 16), make_query(rng, 2, 16)]
    promising(lambda query: -score(query, bank))
    for kernel in KERNELS:
        for query, own in zip(queries, stage.candidates_of(queries, bank, 7, kernel), strict=True):
            right = top_k(query, bank, 7, kernel)
            floors = (right.scores[2], right.scores[0], np.nextafter(right.scores[0], np.float32(np.inf)))
            for wanted, floor in zip((3, 1, 0), floors, strict=True):
                known = Known(own, float(floor))
                (found,) = stage.top_k_by_stages([query], bank, 7, kernel, known=[known])
                assert found.proof is not None
                assert found.proof.proven
                np.testing.assert_array_equal(found.positions, right.positions[:wanted])  # a tie with the floor stays
                np.testing.assert_array_equal(found.scores, right.scores[:wanted])


def test_remove_only_and_the_target_alone() -> None:
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*clustered_bank(rng, 150, 4, 16)).summarised()
    query = make_query(rng, 5, 16)
    for weights in (-np.abs(query.weights), np.zeros_like(query.weights)):
        changed = replace(query, weights=weights)
        for whole in (query.global_weights, np.zeros_like(query.global_weights)):
            asked = replace(changed, global_weights=whole)
            is_the_full_answer(staged(asked, bank, 10, "exact"), asked, bank, 10, NUMPY)


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
            patched.setattr(matching, "WORTH", 100)
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
        stage.top_k_by_stages([], MemoryBank.of(*random_bank(np.random.default_rng(1), 3, 1, 2)), 0, NUMPY)


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
