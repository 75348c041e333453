"""NumPy's matrix products on one thread, for code that keeps every core busy with threads of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from tapr.errors import BadInput
from tapr.utils.extras import install_hint

try:
    from threadpoolctl import ThreadpoolController
except ImportError:
    raise BadInput(f"the compared methods need one more package: {install_hint('eval')}") from None

_lock = Lock()
_inside: list[Any] = []  # one entry a caller inside; the first is the limit itself


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads of BLAS that wait for one another cost several threads of callers half their speed.

    The limit holds for the process. Callers may overlap: the first in sets it, the last out lifts it.
    """
    with _lock:
        _inside.append(None if _inside else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            if len(_inside) == 1:
                _inside[0].restore_original_limits()
            _inside.pop()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
