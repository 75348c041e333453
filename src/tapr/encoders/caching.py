"""An encoder that remembers the phrases it has read, for a run's methods or for a server's threads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, Evidence
from tapr.encoders.centred import SUFFIX
from tapr.encoders.wrapper import EncoderWrapper
from tapr.types import Float32
from tapr.utils.files import write_atomically
from tapr.utils.lru import LRU


class CachingEncoder(EncoderWrapper):
    """An Encoder around another, safe to call from many threads. A phrase is encoded once while it is remembered.

    `together`: how many new phrases go into one call; 1 where a vector must not depend on its company.
    `limit`: how many phrases are remembered, the least recently used go first; None: all.
    """

    def __init__(self, encoder: Encoder, *, together: int = 64, limit: int | None = None) -> None:
        super().__init__(encoder)
        self._together = together
        self._lock = RLock()  # of an encoder only `prepare` is promised to be thread-safe
        self._texts: LRU[str, Float32] = LRU(limit)  # each (d,)
        # a phrase reads the same in both uses unless the bank is centred
        self._atoms = LRU(limit) if encoder.card.extractor.endswith(SUFFIX) else self._texts

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        with self._lock:
            return self._encoder.encode_images(prepared)

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        return self._remembered(texts, self._texts, self._encoder.encode_texts)

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self._remembered(texts, self._atoms, self._encoder.encode_atoms)

    def unread(self, text: str) -> str:
        with self._lock:
            return self._encoder.unread(text)

    @contextmanager
    def cached_in(self, path: Path) -> Iterator[Callable[[], None]]:
        """Begin with what a file remembers of the same encoder; leave in it what is known at the end.

        Yields a function that writes the file before the end: a vector may depend on the phrases that were encoded
        with it, so a run that is killed and goes on must not encode anew what it has used.
        """
        self._recall(path)
        written = self._size()

        def keep() -> None:
            nonlocal written
            if self._size() != written:
                self._keep(path)
                written = self._size()

        try:
            yield keep
        finally:
            self._keep(path)

    def _size(self) -> int:
        return len(self._texts) + len(self._atoms)

    def _remembered(
        self,
        phrases: Sequence[str],
        known: LRU[str, Float32],
        encode: Callable[[Sequence[str]], Float32],
    ) -> Float32:
        if not len(phrases):
            return np.zeros((0, self.card.dim), np.float32)
        with self._lock:
            found = {phrase: vector for phrase in phrases if (vector := known.get(phrase)) is not None}
            # phrases of one length together: a tower's time goes with the longest phrase of a batch
            new = sorted(set(phrases) - found.keys(), key=lambda phrase: (len(phrase), phrase))
            for start in range(0, len(new), self._together):
                batch = new[start : start + self._together]
                for phrase, vector in zip(batch, encode(batch), strict=True):
                    found[phrase] = vector
                    known.put(phrase, vector)
            for phrase in phrases:
                known.put(phrase, found[phrase])
        return np.stack([found[phrase] for phrase in phrases])

    def _keep(self, path: Path) -> None:
        arrays: dict[str, Any] = {"card": np.array(self._card_text())}
        for name, known in (("texts", self._texts), ("atoms", self._atoms)):
            pairs = known.items()
            arrays[f"{name}_phrases"] = np.array([phrase for phrase, _ in pairs], dtype=np.str_)
            arrays[f"{name}_vectors"] = (
                np.stack([vector for _, vector in pairs]) if pairs else np.zeros((0, 0), np.float32)
            )
        file = io.BytesIO()
        np.savez(file, **arrays)
        write_atomically(path, file.getvalue())

    def _recall(self, path: Path) -> None:
        if not path.is_file():
            return
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["card"]) != self._card_text():
                return
            for name, known in (("texts", self._texts), ("atoms", self._atoms)):
                for phrase, vector in zip(arrays[f"{name}_phrases"].tolist(), arrays[f"{name}_vectors"], strict=True):
                    known.put(phrase, vector)

    def _card_text(self) -> str:
        return json.dumps(self.card.to_dict(), sort_keys=True)
