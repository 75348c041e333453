"""Queries that arrive together are scored together: one sweep over the bank for all that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread

from tapr.match import top_k_many
from tapr.match.base import Bank, Kernel
from tapr.match.topk import TopK
from tapr.score.compile import CompiledQuery

MOST = 32  # queries in one sweep: scores are (queries, pictures) in memory


@dataclass(frozen=True, eq=False)
class _Job:
    queries: Sequence[CompiledQuery]  # of one caller: answered together
    bank: Bank
    k: int
    answers: Future[list[TopK]] = field(default_factory=Future)


class Batcher:
    """One thread that matches. While it sweeps, queries gather; the next sweep takes them all."""

    def __init__(self, kernel: Kernel, observe: Callable[[int], None] = lambda size: None) -> None:
        self.kernel = kernel
        self._observe = observe
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="tapr-match", daemon=True)
        self._thread.start()

    def top_k(self, query: CompiledQuery, bank: Bank, k: int) -> TopK:
        return self.top_k_many([query], bank, k)[0]

    def top_k_many(self, queries: Sequence[CompiledQuery], bank: Bank, k: int) -> list[TopK]:
        """Waits for its turn; banks that are the same object share a sweep. Raises what the kernel raised."""
        job = _Job(queries, bank, k)
        self._jobs.put(job)
        return job.answers.result()

    def close(self) -> None:
        """After the last caller has its answer."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            groups: dict[int, list[_Job]] = {}
            for job in [first, *self._waiting(MOST - len(first.queries))]:
                groups.setdefault(id(job.bank), []).append(job)
            for group in groups.values():
                self._sweep(group)

    def _waiting(self, room: int) -> Iterator[_Job]:
        while room > 0:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is None:
                self._jobs.put(None)  # close() is read again, after this sweep
                return
            room -= len(job.queries)
            yield job

    def _sweep(self, jobs: Sequence[_Job]) -> None:
        queries = [query for job in jobs for query in job.queries]
        self._observe(len(queries))
        most = max(job.k for job in jobs)
        try:
            answers = iter(top_k_many(queries, jobs[0].bank, most, self.kernel))
        except BaseException as error:
            for job in jobs:
                job.answers.set_exception(error)
            return
        for job in jobs:
            job.answers.set_result([next(answers).first(job.k) for _ in job.queries])
