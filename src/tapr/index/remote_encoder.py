"""Elsewhere: other machines that read and encode the pictures of an index run. cluster/index.py is one way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tapr.encoders.base import Encoder
from tapr.index.captions import Describe
from tapr.index.load import Loaded
from tapr.index.sources import Candidate
from tapr.store.layout import Manifest


class RemoteEncoder(Protocol):
    def look(
        self, manifest: Manifest, encoder: Encoder, candidates: Sequence[Candidate], describe: bool
    ) -> tuple[Encoder, Iterator[Loaded], Describe]:
        """-> what has their vectors, the pictures in their order, and what has their captions, if those are wanted."""
