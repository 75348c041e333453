"""A search that scores few pictures exactly, and knows whether the answer is exact.

The most promising candidates are scored exactly; the k-th best of them is the floor. Outlines bound every other
picture's score, and summaries those that can still reach the floor, more closely. What cannot is ruled out. The
others are scored in the order of their bounds, until none is left (the answer is proven), as many were scored as were
asked for, or the time is over. Where time is limited, all of this is done with the most promising pictures first.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.prefilter.device_bank import DeviceBank, device_bank_of
from tapr.search.prefilter.device_search import DeviceSearch
from tapr.search.prefilter.rounds import Known, Scored
from tapr.search.prefilter.staged_search import bound_all, searches_of
from tapr.search.topk import TopK, check_asked


def top_k_by_stages(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    k: int,
    kernel: Kernel,
    budget: Budget = "exact",
    budget_ms: float | None = None,
    known: Sequence[Known] | None = None,
) -> list[TopK]:
    """The k best: those of top_k where `proof.proven`, otherwise the best of the pictures that were scored.

    Of a part of a gallery, `known` is what rounds.py says, one per query; pictures below its floor are left out.
    """
    deadline = None if budget_ms is None else monotonic() + budget_ms / 1000
    _check(queries, bank, k)
    device = device_bank_of(kernel, bank)
    if device is not None and len(bank):
        return [
            top_k_on_device(query, device, k, budget, deadline, None if known is None else known[number])
            for number, query in enumerate(queries)
        ]
    searches = searches_of(queries, bank, k, kernel, budget)
    for number, search in enumerate(searches):
        if known is None:
            search.read_best()
        else:
            search.begin_with(known[number])
    if deadline is None:
        bound_all(searches)
    else:
        # an equal part of the time for each
        for left, search in zip(range(len(searches), 0, -1), searches, strict=True):
            search.go_on_until(monotonic() + (deadline - monotonic()) / left)
    return [search.result() for search in searches]


def top_k_on_device(
    query: CompiledQuery,
    device: DeviceBank,
    k: int,
    budget: Budget = "exact",
    deadline: float | None = None,
    known: Known | None = None,
) -> TopK:
    """The same for one query, with candidates and bounds from a GPU."""
    search = DeviceSearch(query, device, k, budget, known)
    search.go_on_until(deadline)
    return search.result()


def candidates_of(
    queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget = "exact"
) -> list[Scored]:
    """The first step alone: each query's most promising pictures, scored exactly."""
    _check(queries, bank, k)
    device = device_bank_of(kernel, bank)
    if device is not None and len(bank):
        return [DeviceSearch(query, device, k, budget, None).scored() for query in queries]
    searches = searches_of(queries, bank, k, kernel, budget)
    for search in searches:
        search.read_best()
    return [search.scored() for search in searches]


def no_first_stage() -> BadInput:
    return BadInput("the gallery has no first stage: make one with tapr first-stage", code="no_prefilter")


def _check(queries: Sequence[CompiledQuery], bank: Bank, k: int) -> None:
    check_asked(queries, bank, k)
    if bank.subspaces is None:
        raise no_first_stage()
