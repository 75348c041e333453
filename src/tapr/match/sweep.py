"""One sweep over a bank: every block once, every query on it, nothing larger than the scores kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tapr.encoders.base import Float32
from tapr.errors import BadInput, TaprError
from tapr.match.base import Bank, Kernel, Level, Rows, finest
from tapr.match.choose import choose_kernel
from tapr.match.parts import distinct
from tapr.score.compile import CompiledQuery


def score(query: CompiledQuery, bank: Bank, kernel: Kernel | None = None) -> Float32:
    """-> (N,) in gallery order."""
    (scores,) = score_many([query], bank, kernel)
    return np.asarray(scores, np.float32)


def score_many(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel | None = None) -> Float32:
    """-> (Q, N) in gallery order, one sweep over the bank."""
    check(queries, bank)
    kernel = kernel or choose_kernel()
    return score_rows(queries, bank, kernel, finest(bank), bank.rows)


def score_rows(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel, level: Level, wanted: Rows) -> Float32:
    """-> (Q, R) for these rows, in their order; each is read once, however often it is named."""
    rows, places = distinct(wanted, bank.row_count)
    scores = refuse_odd_scores(kernel.score(queries, bank, level, rows))
    return np.asarray(scores if places is None else scores[:, places], np.float32)


def refuse_odd_scores(scores: Float32) -> Float32:
    """Queries hold finite numbers only, so what is not a number comes from the bank. No ranking could hold it."""
    if not math.isfinite(float(scores.sum(dtype=np.float64))):
        raise TaprError(
            "a score is infinite or not a number: the gallery's vectors are damaged; "
            "run tapr doctor --verify -g GALLERY to see which"
        )
    return scores


def check(queries: Sequence[CompiledQuery], bank: Bank) -> None:
    for query in queries:
        if query.dim != bank.card.dim:
            raise BadInput(
                f"the query has vectors of {query.dim} numbers and the bank, made with {bank.card.name}, of "
                f"{bank.card.dim}: compile the query with the bank's encoder"
            )
