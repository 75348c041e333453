"""Reference pictures, decoded and encoded once, and cached by key for later requests."""

from __future__ import annotations

from dataclasses import replace

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.images.decode import Limits, sha256_of
from tapr.images.workers import decode_apart
from tapr.query.open_reference import Known, open_bytes
from tapr.query.reference import Reference
from tapr.utils.lru import LRU


class UnknownReference(BadInput):
    """A key that is not in the cache (any more)."""

    code = "unknown_reference"


class References:
    """A cache of references. The key is the SHA-256 of the picture's bytes."""

    def __init__(self, encoder: Encoder, most: int) -> None:
        self._encoder = encoder
        self._opened: LRU[str, Reference] = LRU(most)

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, data: bytes, limits: Limits, in_gallery: Known) -> Reference:
        """Open a reference and cache it. `in_gallery` looks up vectors that the gallery has."""
        key = sha256_of(data)
        kept = self._opened.get(key)
        if kept is not None:
            return kept
        reference = open_bytes(data, self._encoder, in_gallery, limits, decode=decode_apart)
        self._opened.put(key, reference)
        return reference

    def keep(self, reference: Reference) -> None:
        """One that was opened elsewhere, such as that of a saved search."""
        self._opened.put(reference.sha256, replace(reference, crop=None))

    def get(self, key: str) -> Reference:
        kept = self._opened.get(key)
        if kept is None:
            raise UnknownReference(f"the server keeps no reference with the key {key[:80]!r}: send the picture again")
        return kept
