"""The one who writes: orders that arrive together become one snapshot, and searches never wait for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from queue import Empty, SimpleQueue
from threading import Thread

from tapr.encoders.base import Evidence
from tapr.errors import TaprError
from tapr.finding import Scale
from tapr.gallery.captions import Describe, describer
from tapr.gallery.fulfil import Outcome
from tapr.gallery.orders import Done, Order
from tapr.serve.engine import Engine

MOST = 256  # orders of one snapshot


@dataclass(frozen=True, eq=False)
class _Job:
    orders: Sequence[Order]
    outcomes: Future[list[Outcome]] = field(default_factory=Future)


class Writer:
    """One thread per gallery. While it writes, orders gather; the next snapshot takes them all."""

    def __init__(self, engine: Engine, observe: Callable[[int], None] = lambda orders: None) -> None:
        self._engine, self._observe = engine, observe
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="tapr-write", daemon=True)
        self._thread.start()

    def fulfil(self, orders: Sequence[Order]) -> list[Outcome]:
        """When this returns, every search that begins sees what was done, and a kill does not undo it."""
        job = _Job(orders)
        self._jobs.put(job)
        return job.outcomes.result()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first, *self._waiting(MOST - len(first.orders))]
            try:
                outcomes = iter(self._write([order for job in jobs for order in job.orders]))
            except BaseException as error:
                for job in jobs:
                    job.outcomes.set_exception(_own(error))
                continue
            for job in jobs:
                job.outcomes.set_result([next(outcomes) for _ in job.orders])

    def _waiting(self, room: int) -> Iterator[_Job]:
        while room > 0:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is None:
                self._jobs.put(None)  # close() is read again, after this
                return
            room -= len(job.orders)
            yield job

    def _write(self, orders: Sequence[Order]) -> list[Outcome]:
        engine = self._engine
        with engine.publishing():
            gallery = copy.copy(engine.gallery)  # the snapshot that searches hold stays as it is
            before = gallery.manifest.snapshot
            outcomes = gallery.apply(orders, self._describe)
            Scale.of(gallery)  # now, not while the next search waits
            engine.take_up(gallery)
        if gallery.manifest.snapshot != before:
            self._observe(sum(isinstance(outcome, Done) for outcome in outcomes))
        return outcomes

    def _describe(self, evidence: Evidence) -> Sequence[str]:
        return self._describer(evidence)

    @cached_property
    def _describer(self) -> Describe:
        return describer(self._engine.encoder)


def _own(error: BaseException) -> BaseException:
    """One for each who waits: raising one object in several threads mixes their traces."""
    return type(error)(str(error)) if isinstance(error, TaprError) else error
