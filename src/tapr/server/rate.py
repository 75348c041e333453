"""Rate limits: a token bucket per client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from threading import Lock

from tapr.errors import BadInput
from tapr.utils.lru import LRU

_MAX_CLIENTS = 10_000  # clients in memory; the least recent are dropped first
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_rate(text: str) -> tuple[int, float]:
    """5/s, 100/m or 1000/h -> number of requests, and seconds."""
    found = re.fullmatch(r"([1-9]\d{0,6})(?:/([smh]))?", text.strip())
    if not found:
        raise BadInput(f"a rate is written like 5/s, 100/m or 1000/h, not {text!r}")
    return int(found[1]), _UNITS[found[2] or "s"]


class RateLimit:
    """Allows a burst of `count` requests, then one at a time at the given rate."""

    def __init__(self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_second, self._clock = float(count), count / seconds, clock
        self._lock = Lock()
        self._buckets: LRU[str, tuple[float, float]] = LRU(_MAX_CLIENTS)  # client -> tokens left, time

    def wait(self, asker: str) -> float:
        """0 if the client may send this request, which is then counted; otherwise the seconds until it may."""
        now = self._clock()
        with self._lock:
            left, then = self._buckets.get(asker) or (self._most, now)
            left = min(self._most, left + (now - then) * self._per_second)
            allowed = left >= 1
            self._buckets.put(asker, (left - 1 if allowed else left, now))
        return 0.0 if allowed else (1 - left) / self._per_second
