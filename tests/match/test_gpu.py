"""The GPU kernels against the definition: on a GPU where there is one, and everywhere in Triton's interpreter."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard, Float32
from tapr.errors import BadInput
from tapr.gallery.block import Block, Precision
from tapr.gallery.codec import quantise
from tapr.match import gpu, reference
from tapr.query import CompiledQuery, Term

torch = pytest.importorskip("torch", reason="the GPU kernels need torch")
from tapr.match import gpu_pack  # noqa: E402

PRECISIONS: tuple[gpu.ScanPrecision, ...] = ("fp16", "int8")
WORKER = """
import pickle, sys
from tapr.match.gpu import GpuKernel
cases = pickle.load(sys.stdin.buffer)
scores = {key: GpuKernel("cpu", key[1]).score(*case) for key, case in cases.items()}
pickle.dump(scores, sys.stdout.buffer)
"""


def unit(vectors: Any) -> Float32:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def make_query(probes: NDArray[Any], weights: NDArray[Any], tau: float = 0.02) -> CompiledQuery:
    dim = probes.shape[1]
    terms = (Term("target", "", 0, 0), Term("add", "", 0, len(probes)))
    target = unit(np.random.default_rng(dim).normal(size=dim))
    return CompiledQuery(target, 0.4, probes.astype(np.float32), weights.astype(np.float32), terms, tau)


def make_block(global_vectors: Float32, local_vectors: Float32) -> Block:
    half = local_vectors.astype(np.float16)
    codes, scales, errors = quantise(half)
    return Block(0, global_vectors.astype(np.float16), half, codes, scales, errors)


Case = tuple[list[CompiledQuery], Block]


def random_case(images: int, locals_: int, dim: int, *probes: int, tau: float = 0.02) -> Case:
    rng = np.random.default_rng(images * locals_ + dim)
    block = make_block(unit(rng.normal(size=(images, dim))), unit(rng.normal(size=(images, locals_, dim))))
    weights = [rng.normal(size=n) / max(1, n) for n in probes]
    return [make_query(unit(rng.normal(size=(len(w), dim)) + 1e-9), w, tau) for w in weights], block


def clustered_case() -> Case:
    """Local vectors near few centres, probes near local vectors: the softmax has close runners-up."""
    rng = np.random.default_rng(5)
    centres = unit(rng.normal(size=(4, 96)))
    local = unit(centres[rng.integers(0, 4, (9, 49))] + rng.normal(size=(9, 49, 96)) * 0.05)
    probes = unit(local.reshape(-1, 96)[:57] + rng.normal(size=(57, 96)) * 0.02)
    return [make_query(probes, np.where(np.arange(57) % 8, 1, -1) / 57)], make_block(local.mean(axis=1), local)


def tied_case() -> Case:
    """All local vectors of a picture equal, pictures equal too, and a probe that is one of them."""
    one = unit(np.ones((1, 48)))
    local = np.broadcast_to(one, (6, 64, 48))
    return [make_query(np.concatenate([one, -one]), np.array([1.0, -1.0]))], make_block(local[:, 0], local)


def sparse_case() -> Case:
    """Vectors of two components, which fp16 rounds the worst, one probe with all the weight, and a sharp tau."""
    rng = np.random.default_rng(7)
    flat = np.zeros((5 * 16, 32), np.float32)
    angles = rng.uniform(0, np.pi, len(flat))
    flat[:, 3], flat[:, 17] = np.cos(angles), np.sin(angles)
    query = make_query(flat[:1] * 0.6 + flat[1:2] * 0.8, np.ones(1), tau=0.005)
    return [query], make_block(flat[:5], flat.reshape(5, 16, 32))


CASES: dict[str, Callable[[], Case]] = {
    "odd sizes": partial(random_case, 7, 49, 40, 20),
    "72 probes": partial(random_case, 5, 64, 100, 72),
    "one local vector": partial(random_case, 3, 1, 48, 5),
    "no probes": partial(random_case, 3, 4, 32, 0),
    "many queries": partial(random_case, 6, 9, 64, 72, 40, 0, 30),
    "many local vectors": partial(random_case, 4, 130, 32, 3, 100),
    "more than one sweep": partial(random_case, 2, 4, 16, *[600] * 4),
    "zero weights": lambda: ([make_query(q.probes, q.weights * 0) for q in random_case(3, 9, 32, 4)[0]],
                             random_case(3, 9, 32, 4)[1]),
    "sharp tau": partial(random_case, 4, 16, 64, 12, tau=0.002),
    "clustered": clustered_case,
    "ties": tied_case,
    "sparse": sparse_case,
}  # fmt: skip


def expected(case: Case, precision: str) -> NDArray[np.float64]:
    queries, block = case
    assert block.local_codes is not None
    assert block.local_scales is not None
    local: Any = block.local_vectors
    if precision == "int8":
        local = block.local_codes.astype(np.float64) * block.local_scales[..., None].astype(np.float64)
    return np.stack([reference.score(query, block.global_vectors, local) for query in queries])


def assert_same(scores: Float32, case: Case, precision: str) -> None:
    right = expected(case, precision)
    assert scores.shape == right.shape
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, right, rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def interpreted() -> dict[tuple[str, str], Float32]:
    """The Triton kernels' scores of every case, from a process of its own: the interpreter is chosen at import."""
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters fail with NumPy 2.4")
    cases = {(name, precision): make() for name, make in CASES.items() for precision in PRECISIONS}
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=pickle.dumps(cases), env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    scores: dict[tuple[str, str], Float32] = pickle.loads(done.stdout)
    return scores


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_triton_kernels_equal_the_definition(
    name: str, precision: str, interpreted: dict[tuple[str, str], Float32]
) -> None:
    assert_same(interpreted[name, precision], CASES[name](), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_plain_torch_equals_the_definition(name: str, precision: gpu.ScanPrecision) -> None:
    case = CASES[name]()
    assert_same(gpu.TorchKernel("cpu", precision).score(*case), case, precision)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_equals_the_definition(name: str, precision: gpu.ScanPrecision) -> None:
    case = CASES[name]()
    assert_same(gpu.GpuKernel(precision=precision).score(*case), case, precision)


def test_a_block_that_is_empty_or_no_queries() -> None:
    queries, block = random_case(3, 4, 16, 2)
    empty = Block(0, block.global_vectors[:0], np.zeros((0, 4, 16), np.float16))
    assert gpu.TorchKernel().score(queries, empty).shape == (1, 0)
    assert gpu.TorchKernel().score([], block).shape == (0, 3)


# -- packing


def test_a_probe_with_one_large_component_needs_one_part_only() -> None:
    rng = np.random.default_rng(0)
    probes = rng.normal(size=(8, 512)) * 0.03
    probes[:, 133] = rng.uniform(0.6, 0.85, 8)  # as in real CLIP text vectors
    packed = gpu_pack.pack([make_query(unit(probes), np.full(8, 1 / 8))], 512, "fp16", "cpu")
    assert packed.pieces == 1
    assert packed.steps[:8].tolist() == pytest.approx(np.abs(unit(probes)).max(axis=1).tolist())


def test_probes_that_fp16_cannot_hold_come_in_two_parts() -> None:
    query = make_query(np.array([[0.58, 0.81464, 0, 0]]), np.ones(1))
    packed = gpu_pack.pack([query], 16, "fp16", "cpu")
    assert packed.pieces == 2
    first, second = packed.parts.float().numpy().reshape(2, packed.rows, 16)[:, 0] * packed.steps[0].item()
    np.testing.assert_allclose((first + second)[:4], query.probes[0], atol=1e-7)
    assert np.abs(first[:4] - query.probes[0]).max() > 1e-6


@pytest.mark.parametrize("dim", [32, 768, 1280, 4096])
def test_int8_digits_restore_the_probe_and_cannot_overflow(dim: int) -> None:
    probe = unit(np.random.default_rng(dim).normal(size=(1, dim)))
    packed = gpu_pack.pack([make_query(probe, np.ones(1))], dim, "int8", "cpu")
    first, second = packed.parts.double().numpy().reshape(2, packed.rows, dim)[:, 0]
    step = packed.steps[0].item()
    np.testing.assert_allclose(step * (packed.base * first + second), probe[0], rtol=0, atol=0.51 * step)
    assert dim * 127 * (127 * packed.base + packed.base // 2) < 2**31


# -- top k


def test_the_largest_are_ordered_by_score_then_position() -> None:
    scores = torch.tensor([[0.5, -0.0, 0.5, -0.25, 0.0, 0.5, -0.5], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    positions, values = gpu.largest(scores, 6)
    assert positions.tolist() == [[0, 2, 5, 1, 4, 3], [0, 1, 2, 3, 4, 5]]
    assert values.tolist() == [[0.5, 0.5, 0.5, 0.0, 0.0, -0.25], [1.0] * 6]


def test_more_than_there_are() -> None:
    assert gpu.largest(torch.tensor([[1.0, 2.0]]), 50)[0].tolist() == [[1, 0]]


# -- banks on the device


@dataclass(frozen=True)
class FakeBank:
    block: Block
    rows: NDArray[np.int64]
    precision: Precision = "both"

    @property
    def card(self) -> EncoderCard:
        assert self.block.local_codes is not None
        _, locals_, dim = self.block.local_codes.shape
        return EncoderCard("fake", "", dim, (1, locals_), "tokens", 32, "crop")

    @property
    def row_count(self) -> int:
        return len(self.block)

    def blocks(self) -> Iterator[Block]:
        for start in range(0, len(self.block), 5):
            part = np.arange(start, min(start + 5, len(self.block)))
            gathered = self.gather(part)
            yield Block(start, gathered.global_vectors, gathered.local_vectors, gathered.local_codes,
                        gathered.local_scales)  # fmt: skip

    def gather(self, rows: NDArray[np.int64], codes: bool = True) -> Block:
        block = self.block
        assert block.local_vectors is not None
        assert block.local_codes is not None
        assert block.local_scales is not None
        return Block(0, block.global_vectors[rows], block.local_vectors[rows], block.local_codes[rows],
                     block.local_scales[rows])  # fmt: skip

    def __len__(self) -> int:
        return len(self.rows)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return str(request.param)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_bank_that_fits_and_one_that_is_streamed_score_alike(
    device: str, precision: gpu.ScanPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, block = case = random_case(13, 9, 40, 12, 3)
    bank = FakeBank(block, np.arange(13))
    kernel = gpu.GpuKernel(device, precision) if device == "cuda" else gpu.TorchKernel(device, precision)
    monkeypatch.setattr(gpu, "PIECE_BYTES", 3 * 9 * 40)
    resident, streamed = gpu.GpuBank(bank, kernel), gpu.GpuBank(bank, kernel, memory=0)
    assert resident.is_resident
    assert not streamed.is_resident
    assert_same(resident.score_many(queries), case, precision)
    assert_same(streamed.score_many(queries), case, precision)


def test_pictures_are_found_through_their_rows() -> None:
    """Row 2 is dead, pictures 1 and 3 share row 5: they tie, and the lower position comes first."""
    queries, block = random_case(6, 9, 32, 8)
    rows = np.array([4, 5, 0, 5, 1, 3])
    positions, scores = gpu.GpuBank(FakeBank(block, rows), gpu.TorchKernel()).top_k(queries, 6)
    right = expected((queries, block), "fp16")[0, rows].astype(np.float32)
    assert set(positions[0].tolist()) == set(range(6))
    np.testing.assert_allclose(scores[0], np.sort(right)[::-1], atol=1e-5)
    order = positions[0].tolist()
    assert order.index(3) == order.index(1) + 1


# -- what cannot be done is said


def test_an_absent_precision_is_refused() -> None:
    queries, block = random_case(3, 4, 16, 2)
    fp16 = Block(0, block.global_vectors, block.local_vectors)
    with pytest.raises(BadInput, match="no int8 codes"):
        gpu.TorchKernel(precision="int8").score(queries, fp16)
    int8 = Block(0, block.global_vectors, None, block.local_codes, block.local_scales)
    with pytest.raises(BadInput, match="int8 codes alone"):
        gpu.TorchKernel(precision="fp16").score(queries, int8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_it_says_so() -> None:
    pytest.importorskip("triton", reason="said only after Triton is found")
    with pytest.raises(BadInput, match="no CUDA device"):
        gpu.GpuKernel()
    with pytest.raises(BadInput, match="give a CUDA device"):
        gpu.GpuKernel("cpu")


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadInput, match="needs torch"):
        gpu.TorchKernel()


def test_the_module_loads_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import tapr.match.gpu"
    environment = {**os.environ, "PYTHONPATH": str(Path(gpu.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
