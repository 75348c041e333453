"""Limits concurrency: a bounded queue in front of a bounded thread pool, with a time limit per request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import ParamSpec, TypeVar

from tapr.errors import TaprError

P = ParamSpec("P")
T = TypeVar("T")


class Busy(TaprError):
    """The queue is full."""

    code = "busy"


class TooSlow(TaprError):
    """A request exceeded its time limit."""

    code = "too_slow"


class ConcurrencyLimit:
    def __init__(self, name: str, threads: int, queue: int, seconds: float) -> None:
        self.inside = 0  # running or waiting; a thread that exceeds its time limit still counts
        self._queue, self._seconds = queue, seconds
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"tapr-{name}")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            if self.inside >= self._queue:
                raise Busy(f"{self.inside} requests are being worked on already: ask again in a moment")
            self.inside += 1
        # log lines and spans of the thread then belong to the request
        context = copy_context()
        future = self._pool.submit(lambda: context.run(work, *args, **kwargs))
        future.add_done_callback(self._leave)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            raise TooSlow(f"no answer within {self._seconds:g} seconds: ask again, or for less") from None

    def close(self) -> None:
        """Let running work finish; drop waiting work."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _leave(self, _: Future[T]) -> None:
        with self._lock:
            self.inside -= 1
