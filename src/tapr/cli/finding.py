"""Hold what `tapr doctor` found out about one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What is so, whether that is good, and what to do."""

    name: str
    good: bool
    said: str
    advice: str = ""  # what to do, if anything
