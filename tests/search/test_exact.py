"""The same bits whatever library adds up: with a product that rounds every row in another way, and with real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery
from tapr.search.kernels import exact, numpy_kernel
from tapr.search.kernels.base import CODES, VECTORS, Kernel, Level
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import top_k
from tapr.store.codec import rotate
from tapr.types import Float32
from tests.search.banks import make_query, random_bank

LEVELS = {"codes": CODES, "vectors": VECTORS}
# M, d, probes: among them many whose rows torch 2.13 and OpenBLAS round by their place on some processors
SHAPES = [
    (1, 32, 9),
    (1, 64, 1),
    (3, 37, 12),
    (9, 32, 9),
    (9, 100, 20),
    (16, 48, 2),
    (49, 64, 57),
    (2, 1280, 3),
    (5, 1, 1),
]


def unsteady(vectors: Any, probes: Any) -> Any:
    """A matrix product that is right, and adds up every row in another order."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    rows = []
    for place, row in enumerate(flat):
        start = place % len(row)
        terms = row[:, None] * probes.reshape(len(row), -1)
        rows.append(terms[start:].sum(0) + terms[:start].sum(0))
    stack = np.stack if isinstance(vectors, np.ndarray) else _torch().stack
    return stack(rows).reshape(*vectors.shape[:-1], *probes.shape[1:])


def _torch() -> Any:
    return pytest.importorskip("torch", reason="needs torch")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    torch = _torch()
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def alike(rng: np.random.Generator, copies: int, count: int, dim: int) -> MemoryBank:
    globals_, locals_ = random_bank(rng, 1, count, dim)
    return MemoryBank.of(globals_.repeat(copies, axis=0), locals_.repeat(copies, axis=0), "both", block_rows=16)


# -- the arithmetic


def test_the_unsteady_product_is_unsteady() -> None:
    """Else the tests below could not fail."""
    rng = np.random.default_rng(0)
    row = unit(rng.standard_normal((1, 64)))
    found = unsteady(row.repeat(50, axis=0), unit(rng.standard_normal((3, 64))).T)
    assert len(np.unique(found[:, 0])) > 1


@pytest.mark.parametrize("length", [1.0, 1e-6, 3.999, 4.0, 77.0])
@pytest.mark.parametrize("dim", [1, 37, 512, 1280])
def test_a_dot_product_of_the_grid_is_exact_in_any_order(dim: int, length: float) -> None:
    rng = np.random.default_rng(dim)
    vectors = unit(rng.standard_normal((30, dim))).astype(np.float16)
    vectors[0] = dim**-0.5  # a sum of equal terms: the largest
    vectors[1] = 2.0**-24  # and the smallest
    probes = length * unit(rng.standard_normal((5, dim))).astype(np.float64)
    probes[0] = length * dim**-0.5
    grid = exact.on_grid(probes)
    assert np.abs(grid - probes).max() <= 2.0**-27 * max(1, length)
    found = exact.products(vectors.astype(np.float64), grid.T)
    whole = (vectors.astype(np.float64) * 2.0**24).astype(np.int64).astype(object)  # Python's integers round nothing
    right = whole @ np.rint(grid * 2.0**26).astype(np.int64).astype(object).T
    np.testing.assert_array_equal(found * 2.0**50, right.astype(np.float64))
    np.testing.assert_array_equal(unsteady(vectors.astype(np.float64), grid.T), found)


def test_a_dot_product_of_codes_is_exact_in_any_order() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(-127, 128, (40, 1280)).astype(np.float64)
    codes[0] = 127
    grid = exact.on_grid(unit(rng.standard_normal((4, 1280)))).T
    right = codes.astype(np.int64).astype(object) @ np.rint(grid * 2.0**26).astype(np.int64).astype(object)
    np.testing.assert_array_equal(exact.products(codes, grid) * 2.0**26, right.astype(np.float64))
    np.testing.assert_array_equal(unsteady(codes, grid), exact.products(codes, grid))


def test_powers_of_two_are_close() -> None:
    t = np.concatenate([np.linspace(-126, 0, 100_001), [-1e9, -0.5, -1.5, -0.0]]).astype(np.float32)
    found = exact._power_of_two(t.copy(), np)
    right = 2.0 ** np.maximum(t.astype(np.float64), -126)
    assert np.abs(found / right - 1).max() < 3e-7
    assert found[-1] == found[100_000]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 49, 64])
def test_a_sum_takes_every_term_once(count: int) -> None:
    terms = np.random.default_rng(count).integers(-1000, 1000, (5, count, 3)).astype(np.float32)
    np.testing.assert_array_equal(exact._sum(terms.copy()), terms.sum(axis=1))


@pytest.mark.parametrize("dim", [1, 37, 100, 512])
def test_the_rotation_of_a_probe_does_not_depend_on_other_probes(dim: int) -> None:
    """Codes are read with rotated probes: those of weight 0, which are left out, must change no bit of the others."""
    probes = unit(np.random.default_rng(dim).standard_normal((57, dim)))
    together = rotate(probes)
    for chosen in ([0], [56], [3, 17, 18], list(range(1, 57))):
        np.testing.assert_array_equal(rotate(probes[chosen]), together[chosen])


# -- the kernels


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize(("count", "dim", "probes"), SHAPES)
def test_equal_pictures_score_equally_at_every_place(
    kernel: Kernel, count: int, dim: int, probes: int, level: Level
) -> None:
    rng = np.random.default_rng(count + dim)
    bank, query = alike(rng, 70, count, dim), make_query(rng, probes, dim)
    scores = kernel.score([query, make_query(rng, 5, dim)], bank, level)[0]
    assert len(np.unique(scores)) == 1
    for rows in (np.array([69]), np.arange(1, 70, 2)):
        assert set(kernel.score([query], bank, level, rows)[0]) == set(scores)
    assert top_k(query, bank, 4, kernel).positions.tolist() == [0, 1, 2, 3]


@cache
def cases() -> list[tuple[list[CompiledQuery], MemoryBank]]:
    made = []
    for count, dim, probes in SHAPES:
        rng = np.random.default_rng(dim)
        globals_, locals_ = random_bank(rng, 40, count, dim)
        queries = [
            make_query(rng, probes, dim),
            make_query(rng, probes + 8, dim, near=locals_),
            make_query(rng, 0, dim),
        ]
        made.append((queries, MemoryBank.of(globals_, locals_, "both")))
    return made


def all_scores(kernel: Kernel) -> list[Float32]:
    return [kernel.score(queries, bank, level) for queries, bank in cases() for level in LEVELS.values()]


@cache
def right_scores() -> list[Float32]:
    return all_scores(NumpyKernel(threads=1))


def same_bits(found: list[Float32], right: list[Float32]) -> None:
    for left, score in zip(found, right, strict=True):
        np.testing.assert_array_equal(left.view(np.int32), score.view(np.int32))


def test_no_order_of_sums_changes_a_bit_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    right = right_scores()
    monkeypatch.setattr(numpy_kernel, "products", unsteady)
    same_bits(all_scores(NumpyKernel(threads=1)), right)


def test_no_order_of_sums_changes_a_bit_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    _torch()
    from tapr.search.kernels import gpu

    right = right_scores()  # torch has NumPy's bits
    monkeypatch.setattr(gpu, "products", unsteady)
    same_bits(all_scores(gpu.TorchKernel()), right)


def test_numpy_and_torch_have_the_same_bits() -> None:
    torch = _torch()
    from tapr.search.kernels.gpu import TorchKernel

    right = right_scores()
    same_bits(all_scores(TorchKernel("cpu")), right)
    if torch.cuda.is_available():
        same_bits(all_scores(TorchKernel("cuda")), right)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("piece", "product"), [(1, 1), (100_000, 1000), (8 << 20, 1 << 30)])
def test_neither_threads_nor_pieces_change_a_bit_of_numpy(
    threads: int, piece: int, product: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = right_scores()
    monkeypatch.setattr(numpy_kernel, "_PIECE_BYTES", piece)
    monkeypatch.setattr(numpy_kernel, "_PRODUCT_SIZE", product)
    same_bits(all_scores(NumpyKernel(threads=threads)), right)


# few cases: on a busy machine torch's threads wait long for each other
@pytest.mark.parametrize(("threads", "pictures"), [(1, 1), (1, 7), (2, 256), (3, 16)])
def test_neither_threads_nor_pieces_change_a_bit_of_torch(
    threads: int, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _torch()
    from tapr.search.kernels import gpu

    right = right_scores()  # torch has NumPy's bits
    monkeypatch.setattr(gpu, "PICTURES_AT_ONCE", pictures)
    with torch_threads(threads):
        same_bits(all_scores(gpu.TorchKernel()), right)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_change_no_bit_of_the_compiled_kernel(threads: int) -> None:
    cpu = pytest.importorskip(
        "tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError
    )
    for isa in cpu.isas():
        same_bits(all_scores(cpu.CpuKernel(isa, threads)), all_scores(cpu.CpuKernel(isa, 1)))
