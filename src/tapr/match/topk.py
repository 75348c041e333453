"""The k best pictures. A bank with both precisions is scanned in int8 and answered in fp16, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.errors import BadInput
from tapr.match.base import Bank, Kernel
from tapr.match.bounds import radius
from tapr.match.choose import choose_kernel
from tapr.match.sweep import blocks_of, check, codes_only, in_order, needed_rows, score_many
from tapr.query import CompiledQuery

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TopK:
    """The best first; equal scores in gallery order. Fewer than k where the bank has fewer pictures."""

    positions: Positions  # (k,) in gallery order
    scores: Float32  # (k,)
    kernel: str
    exact: bool  # the top k by fp16 vectors; False for a bank that has only int8
    rescored: int | None = None  # pictures read again in fp16 after an int8 scan
    notes: tuple[str, ...] = ()


def top_k(query: CompiledQuery, bank: Bank, k: int, kernel: Kernel | None = None) -> TopK:
    return top_k_many([query], bank, k, kernel)[0]


def top_k_many(queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel | None = None) -> list[TopK]:
    """One TopK a query, one sweep over the bank."""
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check(queries, bank)
    kernel = kernel or choose_kernel(bank.precision)
    if bank.precision == "fp16":
        scores = score_many(queries, bank, kernel)
        return [TopK(best, row[best], kernel.name, True) for row in scores for best in [best_of(row, k)]]
    scanned, radii = _scan(queries, bank, kernel)
    if bank.precision == "int8":
        return [_approximate(row, within, k, kernel) for row, within in zip(scanned, radii, strict=True)]
    return [
        _rescore(query, bank, k, kernel, scanned=row, within=within)
        for query, row, within in zip(queries, scanned, radii, strict=True)
    ]


def best_of(scores: Float32, k: int) -> Positions:
    """Positions of the k largest, descending, ties by lower position."""
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)  # k and all that tie with the last
    else:
        kept = np.arange(len(scores))
    order = np.argsort(-scores[kept], kind="stable")
    return kept[order[:k]].astype(np.int64)


def _scan(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel) -> tuple[Float32, Float32]:
    """Scores by int8 codes and how far each may be off, both (Q, N)."""
    rows, places = needed_rows(bank)
    scores, radii = [], []
    for block in blocks_of(bank, rows):
        assert block.local_errors is not None
        scores.append(kernel.score(queries, codes_only(block)))
        radii.append(np.stack([radius(query, block.local_errors) for query in queries]))
    return in_order(scores, len(queries))[:, places], in_order(radii, len(queries))[:, places]


def _approximate(scores: Float32, within: Float32, k: int, kernel: Kernel) -> TopK:
    best = best_of(scores, k)
    worst = float(within[best].max(initial=0))
    note = f"approximate: the bank holds int8 only, and each score is within {worst:.4f} of its fp16 value"
    return TopK(best, scores[best], kernel.name, False, notes=(note,))


def _rescore(query: CompiledQuery, bank: Bank, k: int, kernel: Kernel, *, scanned: Float32, within: Float32) -> TopK:
    """Read again in fp16 every picture that can be among the best k, and rank these.

    The k best by the scan are read first: the least of their exact scores is a floor under the true k-th score, and
    higher than any that the bounds alone give. Whatever cannot reach it is out, ties included.
    """
    first = best_of(scanned, k)
    exact = np.full(len(scanned), -np.inf, np.float32)
    exact[first] = _exact_scores(query, bank, kernel, first)
    if len(first) < len(scanned):
        reach = np.nextafter(scanned + within, np.float32(np.inf)) >= exact[first].min()
        reach[first] = False
        rest = np.flatnonzero(reach)
        exact[rest] = _exact_scores(query, bank, kernel, rest)
    best = best_of(exact, k)
    return TopK(best, exact[best], kernel.name, True, rescored=int(np.isfinite(exact).sum()))


def _exact_scores(query: CompiledQuery, bank: Bank, kernel: Kernel, positions: Positions) -> Float32:
    rows, places = np.unique(np.asarray(bank.rows, np.int64)[positions], return_inverse=True)
    parts = [kernel.score([query], block) for block in blocks_of(bank, rows, codes=False)]
    return np.asarray(in_order(parts, 1)[0, places], np.float32)
