"""Which search runs: a full sweep, or one by stages where the gallery has a first stage and it pays."""

from __future__ import annotations

from collections.abc import Sequence

from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel
from tapr.search.prefilter.device_bank import device_bank_of
from tapr.search.topk import RemoteBank, TopK, check_asked, top_k_many
from tapr.store.summary import WORTH

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
    if isinstance(bank, RemoteBank):
        check_asked(queries, bank, k)
        return bank.top_k_many(queries, k, prefilter, budget_ms)
    asked = prefilter is not None or budget_ms is not None
    if asked or (has_first_stage(bank) and pays_for(len(bank), k) and _pays_here(bank, kernel)):
        from tapr.search.prefilter.stage import top_k_by_stages

        return top_k_by_stages(queries, bank, k, kernel, prefilter or "exact", budget_ms)
    return top_k_many(queries, bank, k, kernel)


def has_first_stage(bank: Bank) -> bool:
    """Whether a search of it can be limited: by `prefilter`, by `budget_ms`."""
    return bank.subspaces is not None


def pays_for(pictures: int, k: int) -> bool:
    return pictures >= max(WORTH, k * _FEW)


def _pays_here(bank: Bank, kernel: Kernel) -> bool:
    """Also beside a kernel that ranks on its device, where that holds the records and has no room for the vectors."""
    return pays_with(kernel) or device_bank_of(kernel, bank, unasked=True) is not None


def pays_with(kernel: Kernel) -> bool:
    """A kernel that ranks on its device has the bank there, and reads it faster than this machine its summaries."""
    return not isinstance(kernel, RankingKernel) and kernel.name != "numpy"
