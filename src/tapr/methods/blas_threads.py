"""Limits NumPy's matrix products to one thread, for code that runs its own threads on every core."""

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
    raise BadInput(
        f"the compared methods need one more package: {install_hint('eval')}", code="missing_extra"
    ) from None

_lock = Lock()
_inside: list[Any] = []  # one entry per caller inside; the first holds the limit


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this block BLAS uses one thread. BLAS threads inside several calling threads wait for each other and halve
    the speed.

    The limit holds for the whole process. Callers may overlap: the first sets it, the last removes it.
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
