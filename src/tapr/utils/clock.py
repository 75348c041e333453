"""Measures how many seconds each step of a run took."""

from __future__ import annotations

import time


class Clock:
    """Seconds per step. A step starts when the previous one ends."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
