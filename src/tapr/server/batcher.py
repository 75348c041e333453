"""Scores queries that arrive together in one sweep over the bank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.match import match
from tapr.search.topk import TopK
from tapr.server.micro_batcher import Job, MicroBatcher

MAX_BATCH = 32  # queries per sweep: scores of (queries, pictures) are in memory


@dataclass(frozen=True, eq=False, kw_only=True)
class _Asked(Job[CompiledQuery, TopK]):
    bank: Bank
    k: int
    limits: tuple[Budget | None, float | None] = (None, None)  # prefilter and budget_ms


class Batcher:
    """The thread that runs the kernel."""

    def __init__(self, kernel: Kernel, observe: Callable[[int], None] = lambda size: None) -> None:
        self.kernel = kernel
        self._observe = observe
        self._gatherer = MicroBatcher[_Asked]("tapr-match", MAX_BATCH, self._match)

    def top_k(
        self, query: CompiledQuery, bank: Bank, k: int, prefilter: Budget | None = None, budget_ms: float | None = None
    ) -> TopK:
        job = _Asked([query], bank=bank, k=k, limits=(prefilter, budget_ms))
        return self._gatherer.put(job).answers.result()[0]

    def top_k_many(self, queries: Sequence[CompiledQuery], bank: Bank, k: int) -> list[TopK]:
        """Score queries, sharing a sweep with other callers of the same bank object. Raises the kernel's errors."""
        return self._gatherer.put(_Asked(queries, bank=bank, k=k)).answers.result()

    def close(self) -> None:
        """Call this after the last caller has its answer."""
        self._gatherer.close()

    def _match(self, jobs: Sequence[_Asked]) -> None:
        """Queries with limits of their own do not wait for others: a sweep of many would use up their time."""
        groups: dict[Any, list[_Asked]] = {}
        for number, job in enumerate(jobs):
            groups.setdefault(id(job.bank) if job.limits == (None, None) else ("alone", number), []).append(job)
        for group in groups.values():
            self._sweep(group)

    def _sweep(self, jobs: Sequence[_Asked]) -> None:
        queries = [query for job in jobs for query in job.items]
        self._observe(len(queries))
        most = max(job.k for job in jobs)
        try:
            answers = iter(match(queries, jobs[0].bank, most, self.kernel, *jobs[0].limits))
        except BaseException as error:
            for job in jobs:
                job.answers.set_exception(error)
            return
        for job in jobs:
            job.answers.set_result([next(answers).first(job.k) for _ in job.items])
