"""Where the seconds went."""

from __future__ import annotations

import time


class Clock:
    """Laps by name, each from the end of the one before."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
