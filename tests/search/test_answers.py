"""Every kernel answers 200 searches with the pictures and the score bits of its own full scan."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.search.kernels.base import Kernel
from tapr.search.kernels.top_scores import best_of
from tapr.search.sweep import score_rows
from tests.search.searches import Search, searches

SEARCHES = list(searches())


def is_right(search: Search, kernel: Kernel) -> None:
    rows = search.bank.rows
    for found, query in zip(search.answers(kernel), search.queries, strict=True):
        scores = score_rows([query], search.bank, kernel, kernel.levels(search.bank)[-1], rows)[0]
        assert found.proof is None or found.proof.pictures == len(np.unique(rows)), search.name
        if found.proof is None or found.proof.proven:
            best = best_of(scores, search.k)
            np.testing.assert_array_equal(found.positions, best, search.name)
            assert found.exact == (search.bank.precision != "int8"), search.name
        else:
            assert isinstance(search.prefilter, int), search.name
            assert found.proof.read <= search.prefilter, search.name
            assert not found.exact, search.name
        assert found.scores.tobytes() == scores[found.positions].tobytes(), search.name
        order = np.lexsort((found.positions, -found.scores))
        np.testing.assert_array_equal(order, np.arange(len(order)), search.name)


@pytest.mark.parametrize("start", range(0, len(SEARCHES), 50))
def test_every_search_is_answered_as_by_a_full_scan(kernel: Kernel, start: int) -> None:
    for search in SEARCHES[start : start + 50]:
        is_right(search, kernel)
