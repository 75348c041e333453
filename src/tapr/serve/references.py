"""Reference pictures, decoded and encoded once, then kept under their key for the requests that follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from tapr.encoders.base import Encoder, Evidence
from tapr.errors import BadInput
from tapr.factorize.base import Reference
from tapr.images import Limits, decode, sha256_of

KEPT_SIDE = 1024  # pixels: what is kept of a reference is for factorizers and for showing, its evidence is taken before


class UnknownReference(BadInput):
    """A key whose picture is not kept (any more)."""


class References:
    """A bounded memory, least recently used first out. A key is the sha256 of the picture's bytes."""

    def __init__(self, encoder: Encoder, most: int) -> None:
        self._encoder, self._most = encoder, most
        self._opened: OrderedDict[str, Reference] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, data: bytes, limits: Limits, in_gallery: Callable[[str], Evidence | None]) -> Reference:
        """Decode, and encode unless the gallery has the evidence of this very picture: `in_gallery` looks it up.

        A picture of the gallery always gets its evidence from there, so that no answer depends on what was kept.
        """
        key = sha256_of(data)
        kept = self._find(key)
        if kept is not None:
            return kept
        evidence = in_gallery(key)
        image = decode(data, side=KEPT_SIDE if evidence else None, limits=limits)
        if evidence is None:
            evidence = self._encoder.encode_images([self._encoder.prepare(image)])
        if max(image.size) > KEPT_SIDE:
            image.thumbnail((KEPT_SIDE, KEPT_SIDE))
        reference = Reference(image, evidence, key)
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
