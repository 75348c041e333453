"""Scores in gallery order, whatever the rows of the bank look like."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.score import definition as reference
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score, score_many
from tapr.search.topk import top_k
from tapr.store.block import Precision
from tests.search.banks import make_query, random_bank

ROWS = {
    "all": np.arange(60),
    "with dead rows, in another order": np.random.default_rng(0).permutation(60)[:40],
    "two pictures of one row": np.array([5, 5, 59, 0, 5] * 6),
    "few": np.array([41, 3, 3, 17]),
    "none": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("precision", ["fp16", "int8", "both"])
def test_scores_follow_the_gallery_order(kernel: Kernel, rows: np.ndarray, precision: Precision) -> None:
    rng = np.random.default_rng(1)
    bank = MemoryBank.of(*random_bank(rng, 60, 9, 37), precision, rows, block_rows=16)
    queries = [make_query(rng, 12, 37), make_query(rng, 3, 37)]
    whole = [reference.score(query, bank.block.global_vectors, bank.block.decoded()) for query in queries]
    found = score_many(queries, bank, kernel)
    assert found.shape == (2, len(rows))
    for scores, expected, query in zip(found, whole, queries, strict=True):
        np.testing.assert_allclose(scores, expected[rows], rtol=0, atol=2e-5)
        np.testing.assert_array_equal(scores, score(query, bank, kernel))
        best = top_k(query, bank, 7, kernel)
        np.testing.assert_allclose(best.scores, scores[best.positions], rtol=0, atol=2e-5)
        assert len(best.positions) == min(7, len(rows))


def test_only_the_wanted_rows_are_read() -> None:
    class Counting(NumpyKernel):
        rows_read = 0

        def score(self, queries, bank, level, rows=None):  # type: ignore[no-untyped-def]
            self.rows_read += bank.row_count if rows is None else len(rows)
            return super().score(queries, bank, level, rows)

    rng, kernel = np.random.default_rng(2), Counting()
    whole = MemoryBank.of(*random_bank(rng, 60, 9, 37), block_rows=16)
    few = MemoryBank(whole.card, whole.precision, whole.block, ROWS["few"], block_rows=16)
    query = make_query(rng, 5, 37)
    found = score(query, few, kernel)
    assert kernel.rows_read == 3  # one of the four pictures shares its row
    np.testing.assert_array_equal(found, score(query, whole, kernel)[ROWS["few"]])


def test_a_query_of_another_encoder_is_refused() -> None:
    rng = np.random.default_rng(3)
    with pytest.raises(BadInput, match="compile the query with the bank's encoder"):
        score(make_query(rng, 1, 16), MemoryBank.of(*random_bank(rng, 2, 3, 8)))
