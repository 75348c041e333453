"""Micro-batching: one thread works for many callers. Jobs that arrive while it works are done together in its next
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
J = TypeVar("J", bound="Job[Any, Any]")


@dataclass(frozen=True, eq=False)
class Job(Generic[Item, Answer]):
    """The items of one caller. They are done in one turn and answered together."""

    items: Sequence[Item]
    answers: Future[list[Answer]] = field(default_factory=Future)


class MicroBatcher(Generic[J]):
    """`work` receives the jobs of a turn, about `most` items in all, and sets their answers."""

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
        """Call this after the last caller has its answer."""
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
