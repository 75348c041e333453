"""The interface for encoding an index run's pictures on other machines. cluster/index.py implements it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tapr.encoders.base import Encoder
from tapr.index.captions import Describe
from tapr.index.load import Loaded
from tapr.index.sources import Candidate
from tapr.store.layout import Manifest


class RemoteEncoder(Protocol):
    @property
    def devices(self) -> int:
        """Return how many encode at a time, where their speed can be estimated from this machine's; else 1."""

    def check(self, manifest: Manifest) -> None:
        """Refuse what cannot encode for this gallery, even if nothing must be encoded."""

    def look(
        self, manifest: Manifest, encoder: Encoder, candidates: Sequence[Candidate], describe: bool
    ) -> tuple[Encoder, Iterator[Loaded], Describe]:
        """Returns an encoder with their vectors, the pictures in order, and a source of captions if they are wanted."""
