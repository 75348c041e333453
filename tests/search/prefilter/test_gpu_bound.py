"""The first stage on a GPU, or in Triton's interpreter: bounds as the definition has them, and whole searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.score.definition import score as defined
from tapr.search.kernels.base import CODES, VECTORS, Kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.bound import allowance
from tapr.search.prefilter.candidates import resemblance
from tapr.search.prefilter.limit import limit_of, limits_by_records
from tapr.search.prune import Known, floor_of
from tapr.search.topk import TopK, top_k
from tapr.store.block import Precision
from tapr.store.codec import rotate, rotation
from tapr.store.summary import pooled_step
from tests.search.banks import clustered_bank, make_query, random_bank, spiked_bank
from tests.search.interpreted import InterpretedKernel
from tests.search.prefilter.test_bound import held_by

pytest.importorskip("torch", reason="the first stage on a GPU needs torch")
pytest.importorskip("triton", reason="the first stage on a GPU needs Triton")
from tapr.search.kernels.gpu import compiled_kernel
from tapr.search.kernels.gpu_bank import bytes_per_row
from tapr.search.prefilter.gpu_records import bytes_per_picture

pytestmark = pytest.mark.gpu
SMOKE = pytest.mark.smoke
NUMPY = NumpyKernel()
PLENTY = 1 << 30


@pytest.fixture(scope="module")
def gpu() -> Iterator[InterpretedKernel]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        pytest.importorskip("triton", minversion="3.9", reason="older interpreters fail with NumPy 2.4")
    with InterpretedKernel(device) as kernel:
        yield kernel


def holds(gpu: InterpretedKernel, queries: list[CompiledQuery], bank: MemoryBank, rows: Any = None) -> None:
    """Bounds are the definition's but for what rounding is allowed, and never below a score."""
    assert bank.subspaces is not None
    count = bank.card.locals_count
    limits = [limit_of(query, bank.subspaces, count) for query in queries]
    chosen = slice(None) if rows is None else rows
    targets = resemblance(queries, bank, rows, NUMPY).targets
    for closer in (False, True):
        found, lost = gpu.limited(queries, bank, rows, closer)
        right = limits_by_records(limits, bank, rows, targets, closer)
        assert found.dtype == np.float32
        for one, exact, limit, left in zip(found, right, limits, lost, strict=True):
            assert (np.abs(one - exact) <= limit.slack(count, left) + 1e-6).all()  # and the target
            scores = defined(limit.query, bank.block.global_vectors, bank.block.decoded())[chosen]
            assert (one + allowance(limit, NUMPY, VECTORS, count, left) >= scores).all()


SHAPES = [(1, 8), (2, 3), (5, 7), (9, 65), pytest.param(20, 70, marks=SMOKE)]


@pytest.mark.parametrize(("count", "dim"), SHAPES)
def test_bounds_are_the_definitions_but_for_rounding(gpu: InterpretedKernel, count: int, dim: int) -> None:
    for number, make in enumerate((random_bank, clustered_bank, spiked_bank)):
        rng = np.random.default_rng(number)
        bank = MemoryBank.of(*make(rng, 11, count, dim), block_rows=4).summarised()
        near = bank.block.decoded().astype(np.float32)
        queries = [make_query(rng, probes, dim, tau, near) for probes, tau in ((0, 0.02), (1, 1e-6), (18, 10.0))]
        holds(gpu, queries, bank)
        holds(gpu, queries[1:], bank, np.array([0, 3, 4, 10]))


def test_probes_that_point_along_what_is_left_out(gpu: InterpretedKernel) -> None:
    rng = np.random.default_rng(4)
    bank = MemoryBank.of(*random_bank(rng, 12, 12, 24)).summarised()
    one = make_query(rng, 1, 24)
    known = held_by(bank, closer=False)
    rests = unit(((bank.block.decoded() @ rotation(24).T - known) @ rotation(24)).reshape(-1, 24))
    turned = [
        replace(one, probes=(sign * rest[None]).astype(np.float32), weights=np.array([weight], np.float32))
        for rest in rests[::70]
        for sign in (1, -1)
        for weight in (0.6, -0.6)
    ]
    holds(gpu, turned, bank)


def test_vectors_of_length_0_copies_remove_alone_and_odd_weights(gpu: InterpretedKernel) -> None:
    rng = np.random.default_rng(7)
    globals_, vectors = random_bank(rng, 10, 6, 16)
    vectors[3], vectors[4, 2] = 0, 0
    query = make_query(rng, 5, 16)
    changed = [replace(query, weights=factor * query.weights) for factor in (0, 1e-6, 1e3)]
    changed += [
        replace(query, weights=-np.abs(query.weights)),
        replace(query, global_weights=np.zeros_like(query.global_weights)),
        replace(query, weights=np.where(np.arange(5) == 2, np.float32(0), query.weights)),
        replace(query, probes=query.probes * (np.arange(5) != 1)[:, None].astype(np.float32)),
    ]
    for places in (vectors, np.zeros_like(vectors), np.repeat(vectors[:, :1], 6, axis=1)):
        holds(gpu, changed, MemoryBank.of(globals_, places).summarised())


def test_resemblance_is_that_of_numpy_to_the_last_bit(gpu: InterpretedKernel) -> None:
    rng = np.random.default_rng(8)
    for dim in (5, 70):
        bank = MemoryBank.of(*random_bank(rng, 70, 3, dim), block_rows=32).summarised()
        query = make_query(rng, 4, dim)
        for rows in (None, np.array([0, 5, 64, 69])):
            right = resemblance([query], bank, rows, NUMPY)
            promise, targets = gpu.resemblance(query, bank, rows)
            np.testing.assert_array_equal(promise, right.promise[0])
            np.testing.assert_array_equal(targets, right.targets[0])


def test_targets_that_lie_along_what_bytes_lose(gpu: InterpretedKernel) -> None:
    """The worst for a bound by outlines: the target is what a picture's bytes lose of its global vector."""
    rng = np.random.default_rng(9)
    bank = MemoryBank.of(*random_bank(rng, 12, 6, 24)).summarised()
    one = make_query(rng, 2, 24)
    assert bank.block.pooled is not None
    held = bank.block.pooled[:, :24].astype(np.float64) * pooled_step(24)
    lost = unit((rotate(bank.block.global_vectors) - held) @ rotation(24))
    turned = [
        replace(one, global_probes=(sign * rest[None]).astype(np.float32), global_weights=np.array([0.8], np.float32))
        for rest in lost
        for sign in (1, -1)
    ]
    holds(gpu, turned, bank)


# -- whole searches


def beside() -> Kernel:
    return compiled_kernel() or pytest.skip("there is no compiled kernel here")


def room_of(bank: MemoryBank, *, summaries: bool = True) -> int:
    """Memory for the records, and none for the vectors."""
    outlined, summarised = bytes_per_picture(bank.card.locals_count, bank.card.dim)
    return bank.row_count * (outlined + summaries * summarised)


def is_right(found: TopK, query: CompiledQuery, bank: MemoryBank, k: int, kernel: Kernel) -> None:
    right = top_k(query, bank, k, kernel)
    np.testing.assert_array_equal(found.positions, right.positions)
    np.testing.assert_array_equal(found.scores, right.scores)
    assert found.proof is not None
    assert found.proof.proven
    assert found.exact == (bank.precision != "int8")


def some_bank(precision: Precision = "fp16", rows: Any = None, make: Callable[..., Any] = clustered_bank) -> MemoryBank:
    rng = np.random.default_rng(11)
    globals_, locals_ = make(rng, 80, 30, 40)
    globals_[40:46], locals_[40:46] = globals_[3], locals_[3]  # true ties
    return MemoryBank.of(globals_, locals_, precision, rows, block_rows=32).summarised()


@pytest.mark.parametrize("precision", ["int8", pytest.param("both", marks=SMOKE)])
def test_vectors_that_do_not_fit_are_read_by_the_processor(gpu: InterpretedKernel, precision: Precision) -> None:
    kernel, bank, rng = beside(), some_bank(precision), np.random.default_rng(12)
    near = bank.block.decoded().astype(np.float32)
    queries = [make_query(rng, probes, 40, near=near) for probes in (20, 0)]
    queries.append(replace(queries[0], weights=-np.abs(queries[0].weights)))
    for summaries in (True, False):
        memory = room_of(bank, summaries=summaries)
        assert memory < bank.row_count * bytes_per_row(bank, CODES)
        for found, query in zip(gpu.matched(queries, bank, 3, memory, 50), queries, strict=True):  # nobody asks
            is_right(found, query, bank, 3, kernel)
            assert found.kernel == f"cuda-triton bounds, {kernel.name}"
            assert bool(found.remarks) == (not summaries)


def test_pictures_that_share_rows_and_filters(gpu: InterpretedKernel) -> None:
    kernel, rng = beside(), np.random.default_rng(13)
    for rows in ([5, 5, 9, 60, 41, 3, 62, 5, 79], [*range(10, 79), 44, 11], [*reversed(range(80))], []):
        bank = some_bank(rows=np.array(rows, np.int64))
        query = make_query(rng, 6, 40, near=bank.block.decoded().astype(np.float32))
        for k in (1, 4):
            (found,) = gpu.matched([query], bank, k, room_of(bank), prefilter="exact", at_once=(2, 1000, 1000))
            if rows:
                is_right(found, query, bank, k, kernel)
            assert len(found.positions) == min(k, len(rows))


def test_limits_are_kept_and_told(gpu: InterpretedKernel) -> None:
    bank, query = some_bank(make=random_bank), make_query(np.random.default_rng(14), 6, 40)
    (few,) = gpu.matched([query], bank, 3, room_of(bank), prefilter=4)
    (late,) = gpu.matched([query], bank, 3, room_of(bank), budget_ms=1e-6)
    assert few.proof is not None
    assert few.proof.read == 4
    assert late.proof is not None
    assert (late.proof.read, late.proof.open) == (12, 68)
    for found in (few, late):
        assert not found.exact
        assert not found.proof.proven  # type: ignore[union-attr]


def test_with_time_enough_pieces_by_promise_end_in_a_proof(gpu: InterpretedKernel) -> None:
    kernel, query = beside(), make_query(np.random.default_rng(16), 6, 40)
    for rows in (None, np.array([5, 5, 9, 60, 41, 3, 62, 5, 79, *range(20, 50)], np.int64)):
        bank = some_bank("fp16", rows, make=random_bank)
        for summaries in (True, False):
            memory = room_of(bank, summaries=summaries)
            (found,) = gpu.matched([query], bank, 3, memory, budget_ms=1e6, at_once=(2, 1000, 9))
            is_right(found, query, bank, 3, kernel)
            assert found.proof is not None
            assert found.proof.pictures == len(np.unique(bank.rows))


def test_parts_of_a_gallery_in_two_rounds(gpu: InterpretedKernel) -> None:
    kernel, whole, rng = beside(), some_bank(), np.random.default_rng(17)
    query = make_query(rng, 6, 40, near=whole.block.decoded().astype(np.float32))
    right = top_k(query, whole, 3, kernel)
    shares = (np.arange(45), np.array([45, 45, *range(46, 80)]))
    parts = [replace(whole, rows=rows) for rows in shares]
    memory = room_of(whole)
    for most in ("exact", 0):  # of the first part
        budgets = cast(list[Budget], [most, "exact"])
        found = [gpu.candidates([query], part, 3, memory, n)[0] for part, n in zip(parts, budgets, strict=True)]
        for one, part in zip(found, parts, strict=True):
            np.testing.assert_array_equal(one.scores, kernel.score([query], part, VECTORS, one.rows)[0])
            np.testing.assert_array_equal(one.pictures, [np.count_nonzero(part.rows == row) for row in one.rows])
        floor = floor_of(found, 3)
        answers = [
            gpu.staged([query], part, 3, memory, n, [Known(one, floor)])[0]
            for part, one, n in zip(parts, found, budgets, strict=True)
        ]
        positions = [part.rows[answer.positions] for part, answer in zip(parts, answers, strict=True)]
        scores = np.concatenate([answer.scores for answer in answers])
        assert all(answer.proof is not None for answer in answers)
        assert (scores >= floor).all()
        if most == "exact":
            assert all(answer.proof.proven for answer in answers)  # type: ignore[union-attr]
            assert set(right.scores) <= set(scores)
            assert set(np.concatenate(positions)) >= set(right.positions)
        else:
            assert answers[0].proof.read == 0  # type: ignore[union-attr]
            assert not len(answers[0].positions)
        (beaten,) = gpu.staged([query], parts[0], 3, memory, "exact", [Known(found[0], 1e3)])
        assert beaten.proof is not None
        assert (beaten.proof.read, beaten.proof.open) == (len(found[0].rows), 0)
        assert not len(beaten.positions)


def test_what_fits_is_read_on_the_card_and_what_does_not_is_told(gpu: InterpretedKernel) -> None:
    bank, query = some_bank(), make_query(np.random.default_rng(15), 6, 40)
    (whole,) = gpu.matched([query], bank, 3, PLENTY, 50)
    assert whole.proof is None  # a scan of what is on the card
    (asked,) = gpu.matched([query], bank, 3, PLENTY, prefilter="exact")
    assert asked.proof is not None
    assert asked.kernel == "cuda-triton"
    (streamed,) = gpu.matched([query], bank, 3, 100, 50)
    assert streamed.proof is None  # nothing fits
    (left,) = gpu.matched([query], bank, 3, 100, prefilter="exact")
    assert left.kernel == f"{beside().name} bounds, cuda-triton"
    for found in (asked, streamed, left):
        np.testing.assert_array_equal(found.positions, whole.positions)
        np.testing.assert_array_equal(found.scores, whole.scores)
