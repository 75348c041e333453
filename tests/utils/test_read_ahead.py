"""Rows asked for ahead of time: which pages, and that nothing but speed depends on it."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.utils import read_ahead as module
from tapr.utils.read_ahead import are_in_memory, page_ranges, read_ahead

PAGE = mmap.PAGESIZE


def test_rows_near_each_other_are_one_range_and_every_byte_is_in_one() -> None:
    rows = np.array([0, 1, 2, 500, 501, 4000])
    for address, row_bytes in ((PAGE * 7, 100), (PAGE * 7 + 13, 3 * PAGE + 5), (64, 1)):
        ranges = page_ranges(address + rows * row_bytes, row_bytes)
        for start, stop in ranges:
            assert start % PAGE == stop % PAGE == 0
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))
        for row in rows.tolist():
            first, last = address + row * row_bytes, address + (row + 1) * row_bytes
            assert any(start <= first and last <= stop for start, stop in ranges)
    assert len(page_ranges(rows * 4 * PAGE, 4 * PAGE)) == 3
    assert len(page_ranges(np.array([0, 5, 10]) * 4 * PAGE, 4 * PAGE)) == 1
    # another file may lie below the one before it
    assert page_ranges(np.array([9 * PAGE, 10 * PAGE, 2 * PAGE]), 7) == [(9 * PAGE, 11 * PAGE), (2 * PAGE, 3 * PAGE)]


@pytest.mark.parametrize("shape", [(500, 3, 70), (0, 5), (4, 0), (3,)])
def test_what_is_asked_for_is_as_it_was(tmp_path: Path, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.save(tmp_path / "a.npy", numbers)
    for array in (np.load(tmp_path / "a.npy", mmap_mode="r" if numbers.size else None), numbers, numbers[::2]):
        for rows in (np.arange(len(array)), np.arange(len(array))[:1], np.zeros(0, np.int64)):
            read_ahead([array], np.zeros(1, np.int64), rows)
            read_ahead([array, array], np.array([0, len(array)]), np.concatenate([rows, rows + len(array)]))
        np.testing.assert_array_equal(np.asarray(array), numbers[:: 2 if len(array) < len(numbers) else 1])


def test_a_bank_without_files_asks_for_nothing() -> None:
    assert are_in_memory([], np.zeros(0, np.int64), np.arange(3))
    read_ahead([], np.zeros(0, np.int64), np.arange(3))


class System:
    """Says what is in memory, and notes what it is asked for."""

    def __init__(self, there: Callable[[int], bool]) -> None:
        self.there = there
        self.looked_at: list[int] = []
        self.asked: list[tuple[int, int]] = []

    def call(self, name: str, _: Any) -> Any:
        def mincore(address: int, size: int, told: Any) -> int:
            assert address % PAGE == 0
            self.looked_at.append(address)
            told[0] = 1 if self.there(address) else 0
            return 0

        return mincore if name == "mincore" else lambda start, size, _: self.asked.append((start, start + size))


@pytest.mark.skipif(not hasattr(mmap, "MADV_WILLNEED"), reason="this system cannot be asked")
def test_only_what_is_not_in_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.zeros((5000, 2000), np.uint8)
    first, rows = numbers.ctypes.data, np.arange(0, 5000, 3)
    faults = [0]
    monkeypatch.setattr(module, "_faults", 0)
    monkeypatch.setattr(module, "_seen", -np.inf)
    monkeypatch.setattr("resource.getrusage", lambda _: type("Usage", (), {"ru_majflt": faults[0]}))

    def asked(there: Callable[[int], bool]) -> System:
        system = System(there)
        monkeypatch.setattr(module, "_call", system.call)
        read_ahead([numbers], np.zeros(1, np.int64), rows)
        return system

    whole = asked(lambda _: True)
    assert not whole.asked
    assert 16 <= len(whole.looked_at) <= 32
    assert max(whole.looked_at) - min(whole.looked_at) > 0.9 * numbers.nbytes
    for there in (lambda _: False, lambda address: address < first + numbers.nbytes // 2):
        assert asked(there).asked
    faults[0] = 3  # it waited for a disk, though all is said to be there
    assert asked(lambda _: True).asked
    monkeypatch.setattr(module, "_seen", -np.inf)  # long ago
    assert not asked(lambda _: True).asked
