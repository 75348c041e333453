"""Runs asynchronous code to its end from plain code, in a way that a program which ends can break off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from tapr.errors import Unavailable

T = TypeVar("T")

_running: set[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = set()


def run_anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it here, or in a thread where an event loop runs already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_run, coroutine).result()


def cancel_running() -> None:
    """Break off what runs in every thread, so that no thread of a program that ends waits for a language model."""
    for loop, task in tuple(_running):
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(task.cancel)


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def registered() -> T:
        task = asyncio.current_task()
        assert task is not None
        entry = asyncio.get_running_loop(), task
        _running.add(entry)
        try:
            return await coroutine
        finally:
            _running.discard(entry)

    try:
        return asyncio.run(registered())
    except asyncio.CancelledError:
        raise Unavailable("the question was broken off, because the program ends") from None
