"""One pass over a bank: every block is read once for all queries, and only scores are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.errors import BadInput
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Level, Rows, finest
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.row_blocks import distinct
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.types import Float32


def score(query: CompiledQuery, bank: Bank, kernel: Kernel | None = None) -> Float32:
    """Scores (N,) in gallery order."""
    (scores,) = score_many([query], bank, kernel)
    return np.asarray(scores, np.float32)


def score_many(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel | None = None) -> Float32:
    """Scores (Q, N) in gallery order, in one pass over the bank."""
    check(queries, bank)
    kernel = kernel or choose_kernel()
    return score_rows(queries, bank, kernel, finest(bank), bank.rows)


def score_rows(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel, level: Level, wanted: Rows) -> Float32:
    """Scores (Q, R) of these rows, in their order. Repeated rows are read once."""
    rows, places = distinct(wanted, bank.row_count)
    scores = refuse_odd_scores(kernel.score(queries, bank, level, rows))
    return np.asarray(scores if places is None else scores[:, places], np.float32)


def check(queries: Sequence[CompiledQuery], bank: Bank) -> None:
    for query in queries:
        if query.dim != bank.card.dim:
            raise BadInput(
                f"the query has vectors of {query.dim} numbers and the bank, made with {bank.card.name}, of "
                f"{bank.card.dim}: compile the query with the bank's encoder"
            )
