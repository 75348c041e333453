"""Banks on a device: they travel once, stay while there is room, and are never mistaken for one another."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.methods.features import BankView
from tapr.search.kernels.base import CODES, VECTORS, Bank
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.kernels.row_blocks import cuts_of
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score
from tapr.search.topk import top_k
from tapr.store.block import Precision
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.search.banks import make_query, random_bank

torch = pytest.importorskip("torch", reason="banks on a device need torch")
from tapr.search.kernels import gpu, gpu_bank  # noqa: E402

PLENTY = 1 << 30
RNG = np.random.default_rng(0)
QUERY = make_query(RNG, 12, 40)


def bank_of(precision: Precision = "fp16", pictures: int = 60) -> MemoryBank:
    return MemoryBank.of(*random_bank(np.random.default_rng(pictures), pictures, 9, 40), precision, block_rows=16)


def size_of(bank: Bank) -> int:
    return bank.row_count * gpu_bank.bytes_per_row(bank, VECTORS)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return str(request.param)


def kernel_on(device: str, memory: int) -> gpu.DeviceKernel:
    return gpu.GpuKernel(device, memory) if device == "cuda" else gpu.TorchKernel(device, memory)


@pytest.fixture
def travelled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each piece had that went to the device."""
    lengths: list[int] = []
    fill = gpu_bank._fill

    def counted(room: gpu_bank.DeviceRows, block: Any, chosen: Any) -> None:
        lengths.append(len(room))
        fill(room, block, chosen)

    monkeypatch.setattr(gpu_bank, "_fill", counted)
    return lengths


def test_a_bank_is_copied_to_the_device_once(device: str, travelled: list[int]) -> None:
    bank, kernel = bank_of(), kernel_on(device, PLENTY)
    first = top_k(QUERY, bank, 5, kernel)
    assert sum(travelled) == 60
    second = top_k(QUERY, bank, 5, kernel)
    some = MemoryBank(bank.card, bank.precision, bank.block, np.array([3, 3, 59, 4]))
    scores = kernel.score([QUERY], bank, VECTORS)[0]
    np.testing.assert_array_equal(score(QUERY, some, kernel), scores[some.rows])  # few rows, picked on the device
    most = BankView(bank, np.arange(2, 60))
    np.testing.assert_array_equal(score(QUERY, most, kernel), scores[2:])
    assert sum(travelled) == 60
    np.testing.assert_array_equal(first.positions, second.positions)
    np.testing.assert_array_equal(first.scores, second.scores)


@pytest.mark.parametrize("level", [CODES, VECTORS], ids=["codes", "vectors"])
def test_a_bank_that_does_not_fit_is_streamed_and_scores_alike(
    device: str, level: Any, travelled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_of("both")
    monkeypatch.setattr(gpu_bank, "PIECE_BYTES", 7 * gpu_bank.bytes_per_row(bank, level))
    streaming = kernel_on(device, 100)
    rows = np.array([0, 1, 15, 16, 40, 41, 42, 43, 44, 45, 46, 47, 59])
    whole = kernel_on(device, PLENTY).score([QUERY, QUERY], bank, level)
    travelled.clear()
    np.testing.assert_array_equal(streaming.score([QUERY, QUERY], bank, level), whole)
    assert sum(travelled) == 60
    assert 0 < max(travelled) <= 7
    travelled.clear()
    np.testing.assert_array_equal(streaming.score([QUERY, QUERY], bank, level, rows), whole[:, rows])
    assert sum(travelled) == len(rows)


@pytest.mark.parametrize("level", [CODES, VECTORS], ids=["codes", "vectors"])
@pytest.mark.parametrize("rows", [None, [0, 1, 15, 16, 40, 41, 59]], ids=["all", "some"])
def test_rows_are_gathered_by_threads_in_order(level: Any, rows: list[int] | None, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu_bank, "_WORTH_THREADS", 0)
    bank = bank_of("both")
    chosen = None if rows is None else np.array(rows)
    wanted = np.arange(60) if chosen is None else chosen
    stages = list(gpu_bank._stages(cuts_of(bank, chosen, 4), 9))
    assert all(0 < sum(length for *_, length in stage) <= 9 for stage in stages)
    found = []
    for stage in stages:
        room = gpu_bank.DeviceRows.room(bank, level, sum(length for *_, length in stage), torch.device("cpu"))
        gpu_bank._fill_all(room, stage, 3)
        found.append(room)
    block = bank.block
    right = (block.local_codes, block.local_scales) if level.codes else (block.local_vectors,)
    np.testing.assert_array_equal(
        np.concatenate([r.global_vectors[:, :40] for r in found]), block.global_vectors[wanted]
    )
    for place, array in enumerate(right, 1):
        assert array is not None
        got = np.concatenate([room.tensors[place].numpy() for room in found])
        np.testing.assert_array_equal(got[..., : array.shape[-1]], array[wanted])


def test_codes_that_fit_and_vectors_that_do_not(device: str, travelled: list[int]) -> None:
    """The codes stay; of the vectors only those rows travel that are read again."""
    bank = bank_of("both")
    kernel = kernel_on(device, bank.row_count * gpu_bank.bytes_per_row(bank, CODES))
    right = top_k(QUERY, bank_of("fp16"), 3, kernel)
    travelled.clear()
    found = top_k(QUERY, bank, 3, kernel)
    assert found.rescored is not None
    assert sum(travelled) == 60 + found.rescored
    again = top_k(QUERY, bank, 3, kernel)
    assert sum(travelled) == 60 + 2 * found.rescored
    for each in (found, again):
        np.testing.assert_array_equal(each.positions, right.positions)
        np.testing.assert_array_equal(each.scores, right.scores)


def test_the_least_recently_used_goes_when_another_needs_its_room(travelled: list[int]) -> None:
    first, second, third = bank_of(), bank_of(pictures=59), bank_of(pictures=58)
    kernel = gpu.TorchKernel(memory=size_of(first) + size_of(second))
    for bank in (first, second, first):
        score(QUERY, bank, kernel)
    assert sum(travelled) == 60 + 59
    score(QUERY, third, kernel)  # in place of the second
    score(QUERY, first, kernel)
    assert sum(travelled) == 60 + 59 + 58
    score(QUERY, second, kernel)
    assert sum(travelled) == 60 + 59 + 58 + 59


def test_a_bank_that_cannot_fit_does_not_evict_others(travelled: list[int]) -> None:
    small, large = bank_of(pictures=20), bank_of()
    kernel = gpu.TorchKernel(memory=size_of(large) - 1)
    for bank in (small, large, small):
        score(QUERY, bank, kernel)
    assert sum(travelled) == 20 + 60


def test_a_deleted_bank_frees_its_memory() -> None:
    bank = bank_of()
    kernel = gpu.TorchKernel(memory=size_of(bank))
    assert kernel.memory.resident(bank, VECTORS) is not None
    del bank
    gc.collect()
    assert kernel.memory._free() == kernel.memory._limit


def test_no_bank_is_cached_on_the_cpu(travelled: list[int]) -> None:
    bank, kernel = bank_of(), gpu.TorchKernel()
    assert kernel.memory.resident(bank, VECTORS) is None
    for _ in range(2):
        score(QUERY, bank, kernel)
    assert sum(travelled) == 120


def test_a_gallery_is_copied_again_only_after_its_rows_changed(
    tmp_path: Path, device: str, travelled: list[int]
) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    kernel, query = kernel_on(device, PLENTY), make_query(np.random.default_rng(1), 5, gallery.card.dim)

    def agrees(bank: Gallery) -> None:
        np.testing.assert_allclose(score(query, bank, kernel), score(query, bank, NumpyKernel()), rtol=0, atol=1e-4)

    agrees(gallery)
    assert sum(travelled) == 10
    narrowed = gallery.select("id like '%blue%'")
    assert 0 < len(narrowed) < 10
    assert narrowed.stored is gallery.stored
    agrees(narrowed)
    assert sum(travelled) == 10
    flag("orange").save(tmp_path / "p" / "orange.png")
    gallery.sync()
    agrees(gallery)
    assert sum(travelled) == 21
    assert narrowed.stored is not gallery.stored
    agrees(narrowed)  # still what it was
    assert sum(travelled) == 21
