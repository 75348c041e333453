"""When to ask again: what a server could not do just now it may do in a moment."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_AGAIN = (429, 503)


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request is sent at most, and how long is waited in between.

    Every request may be sent again: those that read change nothing, and those that write carry an idempotency key.
    """

    attempts: int = 4
    first: float = 0.2  # seconds; doubled each time, and at least what the server asks for
    longest: float = 20.0
    chance: Callable[[], float] = random.random  # so that many clients do not come back together

    def wait(self, attempt: int, status: int | None, retry_after: str | None) -> float | None:
        """Seconds to wait after this attempt (1, 2, ...) failed; None: do not ask again. No status: no answer came."""
        if attempt >= self.attempts or (status is not None and status not in _AGAIN):
            return None
        asked = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
        if asked > self.longest:
            return None
        return min(self.longest, max(asked, self.first * 2.0 ** (attempt - 1)) * (1 + 0.25 * self.chance()))
