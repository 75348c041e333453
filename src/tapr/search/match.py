"""Which search runs: a full sweep, or one by stages where the gallery has a first stage and it pays."""

from __future__ import annotations

from collections.abc import Sequence

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel
from tapr.search.prefilter.card import card_of
from tapr.search.topk import RemoteBank, TopK, top_k_many

WORTH = 10_000  # pictures from which a first stage is used unasked; docs/scaling.md has the measurement
_FEW = 64  # it pays if k is less than 1 in this many pictures


def match(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    k: int,
    kernel: Kernel,
    prefilter: Budget | None = None,
    budget_ms: float | None = None,
) -> list[TopK]:
    """One TopK per query, in one sweep. Exact, unless a number as `prefilter` or `budget_ms` limits it."""
    asked = prefilter is not None or budget_ms is not None
    if asked and isinstance(bank, RemoteBank):
        what = (
            "a first stage searches on one machine: leave out prefilter and budget_ms, or open the gallery without Ray"
        )
        raise BadInput(what)
    if asked or _pays(bank, k, kernel):
        from tapr.search.prefilter.stage import top_k_by_stages

        return top_k_by_stages(queries, bank, k, kernel, prefilter or "exact", budget_ms)
    return top_k_many(queries, bank, k, kernel)


def has_first_stage(bank: Bank) -> bool:
    """Whether a search of it can be limited: by `prefilter`, by `budget_ms`."""
    return not isinstance(bank, RemoteBank) and bank.subspaces is not None


def _pays(bank: Bank, k: int, kernel: Kernel) -> bool:
    """A kernel that ranks on its device reads a bank that it holds faster than any summaries."""
    if kernel.name == "numpy" or not has_first_stage(bank) or len(bank) < max(WORTH, k * _FEW):
        return False
    return card_of(kernel, bank, unasked=True) is not None if isinstance(kernel, RankingKernel) else True
