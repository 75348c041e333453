"""Match queries with a bank: a full search, or one by summaries where the gallery has a first stage and it pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic

import numpy as np

from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.plan import groups_of, has_first_stage, no_first_stage, search_by_summaries, uses_first_stage
from tapr.search.prefilter.device_bank import DeviceBank
from tapr.search.prune import Known, Pruning, Scored
from tapr.search.stages.job import Job
from tapr.search.topk import RemoteBank, TopK, answer_of, check_asked, top_k_many


def match(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    k: int,
    kernel: Kernel,
    prefilter: Budget | None = None,
    budget_ms: float | None = None,
) -> list[TopK]:
    """Return one TopK per query, in one sweep. Exact, unless a number as `prefilter` or `budget_ms` limits it."""
    if isinstance(bank, RemoteBank):
        check_asked(queries, bank, k)
        return bank.top_k_many(queries, k, prefilter, budget_ms)
    if prefilter is not None or budget_ms is not None or uses_first_stage(bank, k, kernel):
        return top_k_by_summaries(queries, bank, k, kernel, prefilter or "exact", budget_ms)
    return top_k_many(queries, bank, k, kernel)


def top_k_by_summaries(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    k: int,
    kernel: Kernel,
    budget: Budget = "exact",
    budget_ms: float | None = None,
    known: Sequence[Known] | None = None,
) -> list[TopK]:
    """Return the k best: those of top_k where `proof.proven`, otherwise the best of the pictures that were scored.

    Of a part of a gallery, `known` begins the second search, one per query; pictures below its floor are left out.
    """
    deadline = None if budget_ms is None else monotonic() + budget_ms / 1000
    answers: list[TopK] = []
    left, begun = len(queries), iter(known or ())
    for search in _searches(queries, bank, k, kernel, budget, alone=deadline is not None):
        if known is None:
            search.pruning.score_leaders()
        else:
            for ledger in search.pruning.ledgers:
                first = next(begun)
                rows = search.job.selection.indices_of(first.candidates.rows)
                ledger.begin(rows, first.candidates.scores, first.floor)
        # an equal part of the time for each
        search.pruning.finish(None if deadline is None else monotonic() + (deadline - monotonic()) / left)
        left -= len(search.pruning.ledgers)
        answers += search.answers(k)
    return answers


def candidates_of(
    queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget = "exact"
) -> list[Scored]:
    """Score each query's most promising pictures: the first search of a part of a gallery."""
    answers: list[Scored] = []
    for search in _searches(queries, bank, k, kernel, budget):
        search.pruning.score_leaders()
        answers += search.scored()
    return answers


class _Search:
    """A search by summaries of some queries."""

    def __init__(
        self,
        queries: Sequence[CompiledQuery],
        bank: Bank,
        k: int,
        kernel: Kernel,
        device: DeviceBank | None,
        budget: Budget,
    ) -> None:
        self._kernel, self._device = kernel, device
        self.job = Job.of(queries, bank, kernel if device is None else device.reader)
        self.pruning = Pruning(
            search_by_summaries(self.job, k, device),
            len(queries),
            self.job.selection.count,
            k,
            shared=self.job.selection.shared,
            budget=None if budget == "exact" else budget,
        )

    def answers(self, k: int) -> Iterator[TopK]:
        for number, ledger in enumerate(self.pruning.ledgers):
            answer = answer_of(self.job, number, k, ledger)
            proof = Proof(ledger.count, len(ledger.left) + ledger.unseen, self.job.selection.count)
            remarks = () if self._device is None else self._device.remarks
            yield replace(answer, kernel=self._name, exact=answer.exact and proof.proven, proof=proof, remarks=remarks)

    @property
    def _name(self) -> str:
        if self._device is not None:
            return self._device.name
        name, beside = self._kernel.name, self._kernel.bounder.name
        return name if name == beside else f"{beside} bounds, {name}"

    def scored(self) -> Iterator[Scored]:
        selection = self.job.selection
        for ledger in self.pruning.ledgers:
            rows = ledger.rows
            shared = np.ones(len(rows), np.int64) if selection.shared is None else selection.shared[rows]
            physical = selection.physical(rows)
            assert physical is not None
            yield Scored(physical, ledger.scores, shared)


def _searches(
    queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel, budget: Budget, alone: bool = False
) -> Iterator[_Search]:
    """Begin a search of as many queries as go together: one, where a device has the summaries or time is limited."""
    check_asked(queries, bank, k)
    if not has_first_stage(bank):
        raise no_first_stage()
    device = kernel.device_bank(bank) if len(bank) else None
    alone = alone or device is not None
    for group in ([query] for query in queries) if alone else groups_of(queries, len(bank)):
        yield _Search(group, bank, k, kernel, device, budget)
