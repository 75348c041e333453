"""Which rows are read, and where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.search.kernels.row_blocks import distinct, parts_of, pieces_of
from tapr.search.memory_bank import MemoryBank
from tests.search.banks import random_bank


def bank() -> MemoryBank:
    return MemoryBank.of(*random_bank(np.random.default_rng(0), 10, 2, 4), block_rows=4)  # blocks of 4, 4 and 2


def test_every_row_is_read_once_however_often_it_is_named() -> None:
    assert distinct(np.arange(10), 10) == (None, None)
    rows, places = distinct(np.array([7, 2, 7]), 10)
    assert rows is not None
    assert places is not None
    assert rows.tolist() == [2, 7]
    assert rows[places].tolist() == [7, 2, 7]
    rows, places = distinct(np.arange(10)[::-1], 10)  # all of them, in another order
    assert rows is None
    assert places is not None
    assert places.tolist() == list(range(9, -1, -1))


def test_a_block_without_a_wanted_row_is_left_out() -> None:
    found = [(block.start, None if inside is None else inside.tolist()) for block, inside in parts_of(bank(), None)]
    assert found == [(0, None), (4, None), (8, None)]
    wanted = np.array([0, 2, 8, 9])
    found = [(block.start, None if inside is None else inside.tolist()) for block, inside in parts_of(bank(), wanted)]
    assert found == [(0, [0, 2]), (8, None)]
    assert not list(parts_of(bank(), np.zeros(0, np.int64)))


@pytest.mark.parametrize("wanted", [None, np.array([1, 3, 4, 5, 6, 7, 9]), np.zeros(0, np.int64)])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_hold_the_wanted_rows_in_order(wanted: np.ndarray | None, size: int) -> None:
    whole = bank().block
    pieces = list(pieces_of(bank(), wanted, size))
    assert all(len(piece) <= size for piece in pieces)
    read = np.concatenate([piece.global_vectors for piece in pieces]) if pieces else whole.global_vectors[:0]
    np.testing.assert_array_equal(read, whole.global_vectors if wanted is None else whole.global_vectors[wanted])
