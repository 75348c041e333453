"""Reference pictures, decoded and encoded once, and cached by key for later requests."""

from __future__ import annotations

from collections.abc import Callable
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

    def __init__(
        self, encoder: Encoder, most: int, is_in_gallery: Callable[[str], bool] = lambda sha256: False
    ) -> None:
        self._encoder, self._is_in_gallery = encoder, is_in_gallery
        self._opened: LRU[str, tuple[Reference, bool]] = LRU(most)  # and whether the gallery had the picture then

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, data: bytes, limits: Limits, in_gallery: Known) -> Reference:
        """Open a reference and cache it. `in_gallery` looks up vectors that the gallery has."""
        key = sha256_of(data)
        reference = self._find(key)
        if reference is None:
            reference = open_bytes(data, self._encoder, in_gallery, limits, decode=decode_apart)
            self._opened.put(key, (reference, self._is_in_gallery(key)))
        return reference

    def keep(self, reference: Reference) -> None:
        """Cache one that was opened elsewhere, such as that of a saved search; not one deleted from the gallery."""
        is_in_gallery = self._is_in_gallery(reference.sha256)
        if is_in_gallery or reference.id is None:
            self._opened.put(reference.sha256, (replace(reference, crop=None), is_in_gallery))

    def get(self, key: str) -> Reference:
        """Return the reference with this key, or raise UnknownReference."""
        reference = self._find(key)
        if reference is None:
            raise UnknownReference(f"the server keeps no reference with the key {key[:80]!r}: send the picture again")
        return reference

    def _find(self, key: str) -> Reference | None:
        """Look a key up. What was deleted from the gallery since it was opened is dropped."""
        reference, was_in_gallery = self._opened.get(key) or (None, False)
        if was_in_gallery and not self._is_in_gallery(key):
            self._opened.pop(key)
            return None
        return reference
