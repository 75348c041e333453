"""When to send a request again, for clients of HTTP servers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

TEMPORARY = (429, 503)  # statuses of a server that may answer in a moment


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request is sent at most, and how long the pauses between two attempts are.

    Every request of tapr may be sent again: reads change nothing, and writes carry an idempotency key.
    """

    attempts: int = 4
    first: float = 0.2  # seconds of the first pause; each further one is twice as long, or as long as the server asks
    longest: float = 20.0
    chance: Callable[[], float] = random.random  # spreads out clients that failed at the same time

    def wait(self, attempt: int, status: int | None, retry_after: str | None) -> float | None:
        """Return seconds to wait after failed attempt 1, 2, ...; None: give up. `status`: None if no answer came."""
        if attempt >= self.attempts or (status is not None and status not in TEMPORARY):
            return None
        return self.pause(attempt, retry_after_seconds(retry_after))

    def pause(self, attempt: int, server_wait: float | None) -> float | None:
        """Return the pause, whatever the status and the number of attempts; None where the server asks for too long."""
        if server_wait is not None and server_wait > self.longest:
            return None
        doubled = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return max(server_wait or 0.0, doubled * (1 - 0.5 * self.chance()))


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header, which holds seconds or a date; None where it is missing or holds neither."""
    text = (header or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
