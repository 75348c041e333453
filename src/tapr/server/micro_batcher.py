"""Gathering: one thread does what many ask for. While it works, jobs gather; its next turn takes them all."""

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
    """Of one caller: its items are worked on in one turn, and answered together."""

    items: Sequence[Item]
    answers: Future[list[Answer]] = field(default_factory=Future)


class MicroBatcher(Generic[J]):
    """`work` gets the jobs of a turn, about `most` items in all, and settles each one's answers."""

    def __init__(self, name: str, most: int, work: Callable[[list[J]], None]) -> None:
        self._most, self._work = most, work
        self._jobs: SimpleQueue[J | None] = SimpleQueue()
        self._thread = Thread(target=self._turns, name=name, daemon=True)
        self._thread.start()

    def put(self, job: J) -> J:
        """Its answers come with its turn."""
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """After the last caller has its answer."""
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
                    self._jobs.put(None)  # close() is read again, after this turn
                    break
                jobs.append(job)
                room -= len(job.items)
            self._work(jobs)
