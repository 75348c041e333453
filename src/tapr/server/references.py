"""Reference pictures, decoded and encoded once, then kept under their key for the requests that follow."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.images.decode import Limits, sha256_of
from tapr.query.open_reference import Known, open_bytes
from tapr.query.reference import Reference


class UnknownReference(BadInput):
    """A key whose picture is not kept (any more)."""

    code = "unknown_reference"


class References:
    """A bounded memory, least recently used first out. A key is the sha256 of the picture's bytes."""

    def __init__(self, encoder: Encoder, most: int) -> None:
        self._encoder, self._most = encoder, most
        self._opened: OrderedDict[str, Reference] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, data: bytes, limits: Limits, in_gallery: Known) -> Reference:
        """Open as everywhere, and keep; `in_gallery` looks up the vectors that the gallery has."""
        key = sha256_of(data)
        kept = self._find(key)
        if kept is not None:
            return kept
        reference = open_bytes(data, self._encoder, in_gallery, limits)
        with self._lock:
            self._opened[key] = reference
            while len(self._opened) > self._most:
                self._opened.popitem(last=False)
        return reference

    def get(self, key: str) -> Reference:
        kept = self._find(key)
        if kept is None:
            raise UnknownReference(f"the server keeps no reference with the key {key[:80]!r}: send the picture again")
        return kept

    def _find(self, key: str) -> Reference | None:
        with self._lock:
            if key in self._opened:
                self._opened.move_to_end(key)
            return self._opened.get(key)
