"""Scores queries that arrive together in one sweep over the bank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.match import match
from tapr.search.topk import TopK
from tapr.server.micro_batcher import Job, MicroBatcher

MAX_BATCH = 32  # queries per sweep: scores of (queries, pictures) are in memory


Search = Callable[[Sequence[Any], Bank, int, Kernel], Sequence[Any]]  # (queries, bank, k, kernel) -> an answer each


@dataclass(frozen=True, eq=False, kw_only=True)
class _Asked(Job[Any, Any]):
    search: Search
    bank: Bank
    k: int
    alone: bool


class Batcher:
    """The thread that runs the kernel."""

    def __init__(self, kernel: Kernel, observe: Callable[[int], None] = lambda size: None) -> None:
        self.kernel = kernel
        self._observe = observe
        self._gatherer = MicroBatcher[_Asked]("tapr-match", MAX_BATCH, self._match)

    def top_k(
        self, query: CompiledQuery, bank: Bank, k: int, prefilter: Budget | None = None, budget_ms: float | None = None
    ) -> TopK:
        """Queries with limits of their own do not wait for others: a sweep of many would use up their time."""
        limited = prefilter is not None or budget_ms is not None
        search = partial(match, prefilter=prefilter, budget_ms=budget_ms) if limited else match
        found: TopK = self.run(search, [query], bank, k, alone=limited)[0]
        return found.first(k)

    def run(self, search: Search, queries: Sequence[Any], bank: Bank, k: int, *, alone: bool = False) -> list[Any]:
        """Share a sweep with other callers of the same search and bank object, whose k may be larger.

        Raises the kernel's errors.
        """
        return self._gatherer.put(_Asked(queries, search=search, bank=bank, k=k, alone=alone)).answers.result()

    def close(self) -> None:
        """Call this after the last caller has its answer."""
        self._gatherer.close()

    def _match(self, jobs: Sequence[_Asked]) -> None:
        groups: dict[Any, list[_Asked]] = {}
        for number, job in enumerate(jobs):
            groups.setdefault(("alone", number) if job.alone else (job.search, id(job.bank)), []).append(job)
        for group in groups.values():
            self._sweep(group)

    def _sweep(self, jobs: Sequence[_Asked]) -> None:
        queries = [query for job in jobs for query in job.items]
        self._observe(len(queries))
        most = max(job.k for job in jobs)
        try:
            answers = iter(jobs[0].search(queries, jobs[0].bank, most, self.kernel))
        except BaseException as error:
            for job in jobs:
                job.answers.set_exception(error)
            return
        for job in jobs:
            job.answers.set_result([next(answers) for _ in job.items])
