"""Running asynchronous code to its end from plain code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Also where an event loop runs already (a notebook): a thread is borrowed there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
