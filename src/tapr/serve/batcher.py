"""Queries that arrive together are scored together: one sweep over the bank for all that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread

from tapr.gallery import Gallery
from tapr.match import top_k_many
from tapr.match.base import Kernel
from tapr.match.topk import TopK
from tapr.score.compile import CompiledQuery

MOST = 32  # queries in one sweep: scores are (queries, pictures) in memory


@dataclass(frozen=True, eq=False)
class _Job:
    query: CompiledQuery
    gallery: Gallery
    k: int
    answer: Future[TopK] = field(default_factory=Future)


class Batcher:
    """One thread that matches. While it sweeps, queries gather; the next sweep takes them all."""

    def __init__(self, kernel: Kernel, observe: Callable[[int], None] = lambda size: None) -> None:
        self.kernel = kernel
        self._observe = observe
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="tapr-match", daemon=True)
        self._thread.start()

    def top_k(self, query: CompiledQuery, gallery: Gallery, k: int) -> TopK:
        """Waits for its turn; galleries that are the same object share a sweep. Raises what the kernel raised."""
        job = _Job(query, gallery, k)
        self._jobs.put(job)
        return job.answer.result()

    def close(self) -> None:
        """After the last caller has its answer."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            groups: dict[int, list[_Job]] = {}
            for job in [first, *self._waiting()]:
                groups.setdefault(id(job.gallery), []).append(job)
            for group in groups.values():
                self._sweep(group)

    def _waiting(self) -> Iterator[_Job]:
        for _ in range(MOST - 1):
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is None:
                self._jobs.put(None)  # close() is read again, after this sweep
                return
            yield job

    def _sweep(self, jobs: Sequence[_Job]) -> None:
        self._observe(len(jobs))
        most = max(job.k for job in jobs)
        try:
            answers = top_k_many([job.query for job in jobs], jobs[0].gallery, most, self.kernel)
        except BaseException as error:
            for job in jobs:
                job.answer.set_exception(error)
            return
        for job, best in zip(jobs, answers, strict=True):
            job.answer.set_result(_first(best, job.k))


def _first(best: TopK, k: int) -> TopK:
    """The k best are the first of any longer list."""
    return TopK(best.positions[:k], best.scores[:k], best.kernel, best.exact, best.rescored, best.notes)
