"""Names of actors. They hold everything the cluster knows about its groups, so nothing else has to be stored."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tapr.cluster.files import is_url

_NAME = re.compile(r"tapr-([0-9a-f]{12})-s(\d+)-l(\d+)-g(\d+)of(\d+)-c(\d+)")


def key_of(location: str | Path) -> str:
    """The key of a gallery: a hash of its absolute path (the same on every node) or URL."""
    place = str(location).rstrip("/") if is_url(location) else str(Path(location).expanduser().resolve())
    return hashlib.sha256(place.encode()).hexdigest()[:12]


@dataclass(frozen=True, order=True)
class ActorName:
    """One copy of one group."""

    gallery: str
    snapshot: int  # of the gallery
    layout: int  # how often this snapshot was re-partitioned
    group: int
    groups: int
    copy: int

    def __str__(self) -> str:
        return f"tapr-{self.gallery}-s{self.snapshot}-l{self.layout}-g{self.group}of{self.groups}-c{self.copy}"

    @classmethod
    def parse(cls, text: str) -> ActorName | None:
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        gallery, *numbers = match.groups()
        return cls(gallery, *map(int, numbers))
