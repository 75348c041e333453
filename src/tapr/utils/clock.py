"""Measures how many seconds each step of a run took."""

from __future__ import annotations

import time


class Clock:
    """Seconds by name of the step; a step begins where the one before it ended."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
