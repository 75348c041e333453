"""Who finds the top k: a kernel in the caller's thread, or one thread that answers many callers in one sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.match import match
from tapr.search.topk import TopK

MAX_BATCH = 32  # queries per sweep: scores of (queries, pictures) are in memory

Item = TypeVar("Item")
Answer = TypeVar("Answer")
J = TypeVar("J", bound="Job[Any, Any]")
Search = Callable[[Sequence[Any], Bank, int, Kernel], Sequence[Any]]  # (queries, bank, k, kernel) -> an answer each


class Matcher(Protocol):
    """Finds the k best pictures of a bank."""

    def top_k(
        self, query: CompiledQuery, bank: Bank, k: int, prefilter: Budget | None = None, budget_ms: float | None = None
    ) -> TopK: ...


@dataclass(frozen=True, eq=False)
class KernelMatcher:
    """Matches in the caller's thread."""

    kernel: Kernel

    def top_k(
        self, query: CompiledQuery, bank: Bank, k: int, prefilter: Budget | None = None, budget_ms: float | None = None
    ) -> TopK:
        return match([query], bank, k, self.kernel, prefilter, budget_ms)[0]


@dataclass(frozen=True, eq=False)
class Job(Generic[Item, Answer]):
    """The items of one caller. They are done in one turn and answered together."""

    items: Sequence[Item]
    answers: Future[list[Answer]] = field(default_factory=Future)


class MicroBatcher(Generic[J]):
    """One thread that works for many callers: jobs that arrive while it works are done together in its next turn.

    `work` receives the jobs of a turn, about `most` items in all, and sets their answers.
    """

    def __init__(self, name: str, most: int, work: Callable[[list[J]], None]) -> None:
        self._most, self._work = most, work
        self._jobs: SimpleQueue[J | None] = SimpleQueue()
        self._thread = Thread(target=self._turns, name=name, daemon=True)
        self._thread.start()

    def put(self, job: J) -> J:
        """Add a job. Its answers are set when its turn is done."""
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread. Call this after the last caller has its answer."""
        self._jobs.put(None)
        self._thread.join()

    def _turns(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs, room = [first], self._most - len(first.items)
            while room > 0:
                try:
                    job = self._jobs.get_nowait()
                except Empty:
                    break
                if job is None:
                    self._jobs.put(None)  # seen again after this turn, and ends the thread
                    break
                jobs.append(job)
                room -= len(job.items)
            self._work(jobs)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sweep(Job[Any, Any]):
    search: Search
    bank: Bank
    k: int
    alone: bool


class Batcher:
    """Matches in one thread for many callers. Queries that arrive together share a sweep over the bank."""

    def __init__(self, kernel: Kernel, observe: Callable[[int], None] = lambda size: None) -> None:
        self.kernel = kernel
        self._observe = observe
        self._micro_batcher = MicroBatcher[_Sweep]("tapr-match", MAX_BATCH, self._match)

    def top_k(
        self, query: CompiledQuery, bank: Bank, k: int, prefilter: Budget | None = None, budget_ms: float | None = None
    ) -> TopK:
        """Match one query. Queries with limits do not wait for others: a sweep of many would use up their time."""
        limited = prefilter is not None or budget_ms is not None
        search = partial(match, prefilter=prefilter, budget_ms=budget_ms) if limited else match
        top: TopK = self.run(search, [query], bank, k, alone=limited)[0]
        return top.first(k)

    def run(self, search: Search, queries: Sequence[Any], bank: Bank, k: int, *, alone: bool = False) -> list[Any]:
        """Share a sweep with other callers of the same search and bank object, whose k may be larger.

        Raises the kernel's errors.
        """
        job = _Sweep(queries, search=search, bank=bank, k=k, alone=alone)
        return self._micro_batcher.put(job).answers.result()

    def close(self) -> None:
        """End the thread. Call this after the last caller has its answer."""
        self._micro_batcher.close()

    def _match(self, jobs: Sequence[_Sweep]) -> None:
        groups: dict[Any, list[_Sweep]] = {}
        for number, job in enumerate(jobs):
            groups.setdefault(("alone", number) if job.alone else (job.search, id(job.bank)), []).append(job)
        for group in groups.values():
            self._sweep(group)

    def _sweep(self, jobs: Sequence[_Sweep]) -> None:
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
