"""The kernels of a device against the definition: on a GPU where there is one, and everywhere in the interpreter.

Plain torch on the processor passes the tests of every kernel (the fixture `kernel`); what is here is for the fused
kernels, and for both on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.errors import BadInput
from tapr.score import definition as reference
from tapr.score.compile import CompiledQuery
from tapr.search import plan
from tapr.search.kernels.base import COARSE_CODES, CODES, VECTORS, Kernel, Level
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.top_scores import best_of
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score, score_many
from tapr.search.topk import top_k, top_k_many
from tapr.store.block import Precision
from tapr.types import Float32
from tests.search.banks import clustered_bank, make_query, random_bank, spiked_bank
from tests.search.interpreted import InterpretedKernel

torch = pytest.importorskip("torch", reason="the GPU kernels need torch")
from tapr.search.kernels import gpu  # noqa: E402
from tapr.search.kernels.gpu_bank import DeviceMemory  # noqa: E402
from tapr.search.kernels.gpu_topk import largest  # noqa: E402
from tapr.search.kernels.gpu_values import RecordedValues  # noqa: E402

pytestmark = pytest.mark.gpu
SMOKE = pytest.mark.smoke

TOLERANCE = 1e-4
LEVELS = {"codes": CODES, "vectors": VECTORS}
MAKERS = {"random": random_bank, "clustered": clustered_bank, "spiked": spiked_bank}


@dataclass(frozen=True)
class Run:
    """A kernel, and how much it can do while a test waits."""

    kernel: Kernel
    shapes: tuple[tuple[int, int, int, int], ...]  # pictures, M, d, probes
    pictures: int
    queries: int


SMALL = ((3, 49, 40, 20), (2, 64, 100, 72), (5, 1, 48, 5))  # the interpreter takes its time for every picture
LARGE = (*SMALL, (301, 49, 512, 57), (203, 64, 768, 72), (101, 64, 1280, 72), (100, 196, 512, 8), (77, 64, 768, 130))


@pytest.fixture(scope="module", params=["triton-interpreted", "triton-cuda", "torch-cuda"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    if request.param == "triton-interpreted":
        pytest.importorskip("triton", minversion="3.9", reason="older interpreters fail with NumPy 2.4")
        with InterpretedKernel() as kernel:
            yield Run(kernel, SMALL, 60, 8)
        return
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    device = gpu.GpuKernel() if request.param == "triton-cuda" else gpu.TorchKernel("cuda")
    yield Run(device, LARGE, 2000, 1000)


# -- the definition

Case = tuple[list[CompiledQuery], MemoryBank]
Make = Callable[[np.random.Generator, int, int, int], tuple[Float32, Float32]]


def random_case(pictures: int, count: int, dim: int, *probes: int, tau: float = 0.02) -> Case:
    rng = np.random.default_rng(pictures * count + dim)
    bank = MemoryBank.of(*random_bank(rng, pictures, count, dim), "both", block_rows=4)
    return [make_query(rng, n, dim, tau) for n in probes], bank


def close_case() -> Case:
    """Probes near local vectors that are near each other: the softmax has close runners-up."""
    rng = np.random.default_rng(5)
    globals_, locals_ = clustered_bank(rng, 9, 49, 96)
    return [make_query(rng, 57, 96, near=locals_)], MemoryBank.of(globals_, locals_, "both")


def tied_case() -> Case:
    """All local vectors of a picture equal, pictures equal too, and a probe that is one of them."""
    one = unit(np.ones((1, 48)))
    query = replace(make_query(np.random.default_rng(6), 2, 48), probes=np.concatenate([one, -one]))
    return [query], MemoryBank.of(one.repeat(6, axis=0), np.broadcast_to(one, (6, 64, 48)), "both")


def sparse_case() -> Case:
    """Vectors of two components, which fp16 rounds the worst, one probe with all the weight, and a sharp tau."""
    angles = np.random.default_rng(7).uniform(0, np.pi, 80)
    flat = np.zeros((80, 32), np.float32)
    flat[:, 3], flat[:, 17] = np.cos(angles), np.sin(angles)
    query = replace(make_query(np.random.default_rng(7), 1, 32, 0.005), probes=unit(flat[:1] * 0.6 + flat[1:2] * 0.8))
    return [query], MemoryBank.of(flat[:5], flat.reshape(5, 16, 32), "both")


def weightless_case() -> Case:
    queries, bank = random_case(3, 9, 32, 4)
    return [replace(query, weights=query.weights * 0) for query in queries], bank


CASES: dict[str, Callable[[], Case]] = {
    "odd sizes": lambda: random_case(7, 49, 40, 20),
    "72 probes": lambda: random_case(5, 64, 100, 72),
    "one local vector": lambda: random_case(3, 1, 48, 5),
    "no probes": lambda: random_case(3, 4, 32, 0),
    "many queries": lambda: random_case(6, 9, 64, 72, 40, 0, 30),
    "many local vectors": lambda: random_case(4, 130, 32, 3, 100),
    "more than one sweep": lambda: random_case(2, 4, 16, *[600] * 4),
    "weights of zero": weightless_case,
    "sharp tau": lambda: random_case(4, 16, 64, 12, tau=0.002),
    "close": close_case,
    "ties": tied_case,
    "sparse": sparse_case,
}


def expected(query: CompiledQuery, bank: MemoryBank, level: Level) -> NDArray[np.float64]:
    block = replace(bank.block, local_vectors=None) if level.codes else bank.block
    return reference.score(query, block.global_vectors, block.decoded())


def assert_same(scores: Float32, case: Case, level: Level) -> None:
    queries, bank = case
    assert scores.shape == (len(queries), len(bank))
    assert scores.dtype == np.float32
    for found, query in zip(scores, queries, strict=True):
        np.testing.assert_allclose(found, expected(query, bank, level), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=SMOKE if name == "many queries" else ()) for name in CASES])
def test_the_definition_holds(run: Run, name: str, level: Level) -> None:
    queries, bank = case = CASES[name]()
    assert_same(run.kernel.score(queries, bank, level), case, level)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_scores_agree_with_the_definition_alone_and_in_a_batch(run: Run, make: Make, level: Level) -> None:
    rng = np.random.default_rng(1)
    for pictures, count, dim, probes in run.shapes:
        globals_, locals_ = make(rng, pictures, count, dim)
        bank = MemoryBank.of(globals_, locals_, "both")
        queries = [make_query(rng, probes, dim), make_query(rng, probes, dim, near=locals_)]
        together = run.kernel.score(queries, bank, level)
        assert_same(together, (queries, bank), level)
        for scores, query in zip(together, queries, strict=True):
            alone = run.kernel.score([query], bank, level)
            np.testing.assert_allclose(alone[0], scores, rtol=0, atol=2e-5)


def test_nothing_to_score(run: Run) -> None:
    queries, bank = random_case(3, 4, 16, 2)
    empty = MemoryBank.of(np.zeros((0, 16)), np.zeros((0, 4, 16)))
    assert run.kernel.score(queries, empty, VECTORS).shape == (1, 0)
    assert run.kernel.score([], bank, VECTORS).shape == (0, 3)


def test_a_probe_of_weight_zero_changes_no_bit(run: Run) -> None:
    (query,), bank = random_case(20, 9, 37, 6)
    more = np.insert(query.probes, [0, 3], unit(np.ones((2, 37))), axis=0)
    longer = replace(query, probes=more, weights=np.insert(query.weights, [0, 3], 0))
    for level in LEVELS.values():
        found, right = (run.kernel.score([each], bank, level) for each in (longer, query))
        np.testing.assert_array_equal(found, right)


# -- what exact search rests on


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_the_bits_of_a_score_do_not_depend_on_other_rows(run: Run, level: Level) -> None:
    rng = np.random.default_rng(8)
    bank = MemoryBank.of(*random_bank(rng, 150, 49, 100), "both", block_rows=100)
    for query in (make_query(rng, 57, 100), make_query(rng, 3, 100, 0.005), make_query(rng, 0, 100)):
        scores = run.kernel.score([query], bank, level)[0]
        for rows in (np.sort(rng.permutation(150)[:21]), np.arange(30, 149), np.array([149])):
            np.testing.assert_array_equal(run.kernel.score([query], bank, level, rows)[0], scores[rows])


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("tau", [0.005, 0.02, 0.08])
def test_scores_from_codes_are_within_the_radius_alone_and_in_a_batch(run: Run, make: Make, tau: float) -> None:
    rng = np.random.default_rng(10)
    for pictures, count, dim, probes in run.shapes:
        globals_, locals_ = make(rng, pictures, count, dim)
        bank = MemoryBank.of(globals_, locals_, "both")
        assert bank.block.local_errors is not None
        errors = bank.block.local_errors.max(axis=1)
        queries = [make_query(rng, n, dim, tau, near) for n, near in ((probes, None), (probes, locals_), (0, None))]
        together = run.kernel.score(queries, bank, CODES)
        for scores, query in zip(together, queries, strict=True):
            exact = run.kernel.score([query], bank, VECTORS)[0].astype(np.float64)
            within = radius(query, run.kernel, CODES, VECTORS, errors, count)
            assert (np.abs(scores - exact) <= within).all()
            assert (np.abs(run.kernel.score([query], bank, CODES)[0] - exact) <= within).all()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_both_precisions_answer_as_the_vectors_alone(run: Run, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(run.kernel, gpu.DeviceKernel):  # no room for the vectors: the codes are read first
        monkeypatch.setattr(run.kernel, "memory", DeviceMemory(run.kernel.device, run.pictures * 9 * 40))
    rng, k = np.random.default_rng(2), run.pictures // 20
    globals_, locals_ = make(rng, run.pictures, 9, 32)
    globals_[40:50], locals_[40:50] = globals_[3], locals_[3]  # true ties
    queries = [make_query(rng, int(rng.integers(0, 12)), 32) for _ in range(run.queries)]
    queries[1::2] = [make_query(rng, 8, 32, near=locals_) for _ in queries[1::2]]
    fp16, both = (MemoryBank.of(globals_, locals_, precision) for precision in ("fp16", "both"))
    for found, query in zip(top_k_many(queries, both, k, run.kernel), queries, strict=True):
        right = top_k(query, fp16, k, run.kernel)
        np.testing.assert_array_equal(found.positions, right.positions)
        np.testing.assert_array_equal(found.scores, right.scores)
        assert found.exact
        assert found.rescored is not None


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("precision", ["int8", "both"])
def test_many_probes_are_read_by_one_digit_first_and_answered_as_without(
    run: Run, make: Make, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(run.kernel, gpu.DeviceKernel):
        monkeypatch.setattr(run.kernel, "memory", DeviceMemory(run.kernel.device, run.pictures * 9 * 48))
    rng = np.random.default_rng(13)
    globals_, locals_ = make(rng, run.pictures, 9, 32)
    globals_[20:26], locals_[20:26] = globals_[3], locals_[3]  # true ties
    rows = np.concatenate([np.arange(5, run.pictures), [7, 3]])  # dead rows, and a row of two pictures
    bank = MemoryBank.of(globals_, locals_, precision, rows)
    queries = [make_query(rng, 50, 32, near=near) for near in (None, locals_, locals_[:4])]
    levels = run.kernel.levels(replace(bank, precision="int8"), 150)
    assert levels == ((CODES,) if run.kernel.name.startswith("torch") else (COARSE_CODES, CODES))
    together = score_many(queries, bank, run.kernel)
    for q, found in enumerate(top_k_many(queries, bank, 3, run.kernel)):
        # exact: each query as alone; from codes only: as a scan by two digits for these queries
        scores = together[q] if precision == "int8" else score(queries[q], bank, run.kernel)
        np.testing.assert_array_equal(found.positions, best_of(scores, 3))
        np.testing.assert_array_equal(found.scores, scores[found.positions])


def test_the_reading_by_one_digit_stays_within_its_radius(run: Run) -> None:
    if run.kernel.name.startswith("torch"):
        pytest.skip("plain torch has no such reading")
    rng = np.random.default_rng(14)
    globals_, locals_ = clustered_bank(rng, 40, 9, 32)
    bank = MemoryBank.of(globals_, locals_, "both")
    queries = [make_query(rng, 50, 32, near=locals_) for _ in range(3)]
    assert bank.block.local_errors is not None
    errors = bank.block.local_errors.max(axis=1)
    coarse = run.kernel.score(queries, bank, COARSE_CODES)
    for scores, query in zip(coarse, queries, strict=True):
        for level in (CODES, VECTORS):
            closer = run.kernel.score([query], bank, level)[0].astype(np.float64)
            within = radius(query, run.kernel, COARSE_CODES, level, errors, 9)
            assert (np.abs(scores - closer) <= within).all()
        assert np.abs(scores - closer).max() > 0


# -- the best


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_same_top_50_as_the_definition(run: Run, make: Make) -> None:
    rng = np.random.default_rng(9)
    globals_, locals_ = make(rng, 10 * run.pictures if run.queries > 100 else 60, 16, 64)
    bank = MemoryBank.of(globals_, locals_)
    queries = [make_query(rng, 24, 64, near=near) for near in (None, locals_)]
    for query, found in zip(queries, top_k_many(queries, bank, 50, run.kernel), strict=True):
        exact = reference.score(query, bank.block.global_vectors, bank.block.decoded())
        # up to ties: what stands at each rank scores what the definition has at that rank
        np.testing.assert_allclose(exact[found.positions], np.sort(exact)[::-1][:50], rtol=0, atol=TOLERANCE)
        assert len(set(found.positions.tolist())) == 50


def test_the_best_are_those_of_all_scores(run: Run) -> None:
    """Row 2 is dead and rows are shared: such pictures tie, and the lower position comes first."""
    (query,), whole = random_case(20, 9, 32, 8)
    rows = np.array([4, 5, 0, 5, 1, 3, *range(6, 20), 4])
    precisions: tuple[Precision, ...] = ("int8", "fp16")
    for precision in precisions:
        bank = MemoryBank(whole.card, precision, whole.block, rows)
        scores = score(query, bank, run.kernel)
        found = top_k(query, bank, 9, run.kernel)
        np.testing.assert_array_equal(found.positions, best_of(scores, 9))
        np.testing.assert_array_equal(found.scores, scores[found.positions])
        assert top_k_many([], bank, 3, run.kernel) == []


def test_the_largest_are_ordered_by_score_then_position() -> None:
    scores = torch.tensor([[0.5, -0.0, 0.5, -0.25, 0.0, 0.5, -0.5], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    positions, values = largest(scores, 6)
    assert positions.tolist() == [[0, 2, 5, 1, 4, 3], [0, 1, 2, 3, 4, 5]]
    assert values.tolist() == [[0.5, 0.5, 0.5, 0.0, 0.0, -0.25], [1.0] * 6]
    assert largest(torch.tensor([[1.0, 2.0]]), 50)[0].tolist() == [[1, 0]]


@pytest.mark.parametrize("k", [1, 20])
def test_a_search_played_from_a_recording_answers_as_step_by_step(run: Run, k: int) -> None:
    """Its steps, where there is no GPU to record them; some pictures tie."""
    if run.kernel.name.startswith("torch"):
        pytest.skip("plain torch records nothing")
    rng = np.random.default_rng(15)
    globals_, locals_ = random_bank(rng, 340 if isinstance(run.kernel, InterpretedKernel) else 4100, 3, 48)
    globals_[40:50], locals_[40:50] = globals_[3], locals_[3]
    bank = MemoryBank.of(globals_, locals_, "both")
    kept = []  # an answer stays what it was when the next one comes
    for query in (make_query(rng, 9, 48, near=locals_[3:4]), make_query(rng, 12, 48)):
        for level in (CODES, VECTORS):
            answer = played(run.kernel, query, bank, level, k)
            assert answer is not None
            kept.append((answer, run.kernel.score([query], bank, level)[0]))
    for (rows, scores), right in kept:
        np.testing.assert_array_equal(rows, best_of(right, len(rows)))
        np.testing.assert_array_equal(scores, right[rows])


def played(
    kernel: Kernel, query: CompiledQuery, bank: MemoryBank, level: Level, k: int
) -> tuple[NDArray[np.int64], Float32] | None:
    if isinstance(kernel, InterpretedKernel):
        return kernel.played(query, bank, level, k)
    values = kernel.bounds([query], bank, level, level, None)
    assert isinstance(values, RecordedValues)
    return values.play(k)


def test_a_search_at_one_level_ranks_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    bank = MemoryBank.of(*random_bank(rng, 90, 9, 32))
    queries = [make_query(rng, 5, 32) for _ in range(7)]
    kernel = gpu.TorchKernel()
    right = [best_of(scores, 10) for scores in kernel.score(queries, bank, VECTORS)]
    monkeypatch.setattr(kernel, "score", lambda *_: pytest.fail("all scores came to the host"))
    monkeypatch.setattr(plan, "MAX_SCORE_BYTES", 4 * 90 * 3)  # three queries at once
    for found, positions in zip(top_k_many(queries, bank, 10, kernel), right, strict=True):
        np.testing.assert_array_equal(found.positions, positions)


def test_a_thousand_random_queries_are_answered_by_torch_as_from_fp16() -> None:
    rng, kernel = np.random.default_rng(12), gpu.TorchKernel()
    globals_, locals_ = random_bank(rng, 300, 9, 32)
    queries = [make_query(rng, int(rng.integers(0, 12)), 32) for _ in range(1000)]
    exact = top_k_many(queries, MemoryBank.of(globals_, locals_), 10, kernel)
    both = top_k_many(queries, MemoryBank.of(globals_, locals_, "both"), 10, kernel)
    for left, right in zip(exact, both, strict=True):
        np.testing.assert_array_equal(left.positions, right.positions)
        np.testing.assert_array_equal(left.scores, right.scores)
    assert np.mean([found.rescored or 0 for found in both]) < 100


def test_threads_may_share_a_kernel(run: Run) -> None:
    """Queries that need one part and queries that need two, all at once."""
    if not isinstance(run.kernel, gpu.DeviceKernel):
        pytest.skip("its process is asked by one thread")
    rng = np.random.default_rng(16)
    bank = MemoryBank.of(*random_bank(rng, 200, 9, 512), "both")
    queries = [make_query(rng, 5, 512) for _ in range(24)]
    queries[::3] = [replace(query, probes=np.eye(512, dtype=np.float32)[:5] * 0.58) for query in queries[::3]]
    right = [run.kernel.score([replace(query)], bank, VECTORS) for query in queries]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda query: run.kernel.score([query], bank, VECTORS), queries))
    np.testing.assert_array_equal(found, right)


# -- what cannot be done is said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_it_says_so() -> None:
    pytest.importorskip("triton", reason="said only after Triton is found")
    with pytest.raises(BadInput, match="no CUDA device"):
        gpu.GpuKernel()
    with pytest.raises(BadInput, match="give a CUDA device"):
        gpu.GpuKernel("cpu")


def test_too_many_local_vectors_are_refused(run: Run) -> None:
    queries, bank = random_case(1, 300, 16, 2)
    if run.kernel.name.startswith("torch"):
        assert_same(run.kernel.score(queries, bank, VECTORS), (queries, bank), VECTORS)
    else:
        with pytest.raises(BadInput, match="at most 256 local vectors"):
            run.kernel.score(queries, bank, VECTORS)
