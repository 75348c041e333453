"""Limits concurrency: a bounded queue in front of a bounded thread pool, with a time limit per request."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Barrier
from typing import Any, ParamSpec, TypeVar

from tapr.errors import TaprError, Unavailable

_START_SECONDS = 10.0  # for all threads of a pool to start
_PROBE_SECONDS = 3.0  # for a job of `check`; the health check of the container waits for 4
P = ParamSpec("P")
T = TypeVar("T")


class Busy(TaprError):
    """The queue is full."""

    code = "busy"


class TooSlow(TaprError):
    """A request exceeded its time limit."""

    code = "too_slow"


class ConcurrencyLimit:
    """A thread pool that refuses work when too much waits for it. Call `run` and `check` from one event loop."""

    def __init__(self, name: str, threads: int, queue: int, seconds: float) -> None:
        self._queue, self._seconds = queue, seconds
        self._jobs: set[Future[Any]] = set()  # running or waiting; also those whose request exceeded its time limit
        self._progress = time.monotonic()  # when a job last ended, or came to an idle pool
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"tapr-{name}")
        # All threads start now: a later moment in which the system gives no thread then refuses nobody. Each waits
        # until the last one runs, so that none is used twice.
        barrier = Barrier(threads, timeout=_START_SECONDS)
        for _ in range(threads):
            self._pool.submit(barrier.wait)

    @property
    def inside(self) -> int:
        """Return the number of jobs that run or wait."""
        return len(self._jobs)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread of the pool. Raise `Busy` if the queue is full, `TooSlow` after the time limit."""
        if self.inside >= self._queue:
            raise Busy(f"{self.inside} requests are being worked on already: ask again in a moment")
        # log lines and spans of the thread then belong to the request
        call = partial(copy_context().run, work, *args, **kwargs)
        try:
            future: Future[T] = self._pool.submit(call)
        except RuntimeError:  # the pool is closed
            raise Unavailable("the server is shutting down: ask again in a moment") from None
        if not self._jobs:
            self._progress = time.monotonic()
        self._jobs.add(future)  # counted once it is in the pool, which ends or cancels every job
        future.add_done_callback(self._leave)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            raise TooSlow(f"no answer within {self._seconds:g} seconds: ask again, or for less") from None

    async def check(self, work: Callable[[], object]) -> None:
        """Run `work` as requests are run. A pool too busy for it passes if it has ended a job within its time limit."""
        try:
            await asyncio.wait_for(self.run(work), _PROBE_SECONDS)
        except (Busy, TooSlow, TimeoutError):
            if time.monotonic() - self._progress > self._seconds:
                what = f"no request was finished within {self._seconds:g} seconds"
                raise Unavailable(f"{what}: start the server again if this lasts") from None

    def close(self) -> None:
        """Let running work finish, except questions to a language model; drop waiting work."""
        event_loop = sys.modules.get("tapr.factorize.event_loop")  # loaded where a language model was asked
        if event_loop is not None:
            event_loop.cancel_running()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _leave(self, future: Future[Any]) -> None:
        if not future.cancelled():
            self._progress = time.monotonic()
        self._jobs.discard(future)
