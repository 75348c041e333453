"""An encoder that remembers the phrases it has read, for a run's methods or for a server's threads."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Encoder, EncoderCard, Evidence
from tapr.encoders.centred import SUFFIX
from tapr.types import Float32


class CachingEncoder:
    """An Encoder around another, safe to call from many threads. A phrase is encoded once while it is remembered.

    `together`: how many new phrases go into one call; 1 where a vector must not depend on its company.
    `limit`: how many phrases are remembered, the least recently used go first; None: all.
    """

    def __init__(self, encoder: Encoder, *, together: int = 64, limit: int | None = None) -> None:
        self._encoder, self._together, self._limit = encoder, together, limit
        self._lock = RLock()  # of an encoder only `prepare` is promised to be thread-safe
        self._texts: OrderedDict[str, Float32] = OrderedDict()  # each (d,)
        # a phrase reads the same in both uses unless the bank is centred
        self._atoms = OrderedDict() if encoder.card.extractor.endswith(SUFFIX) else self._texts

    @property
    def card(self) -> EncoderCard:
        return self._encoder.card

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self._encoder.prepare(image)

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
        known: OrderedDict[str, Float32],
        encode: Callable[[Sequence[str]], Float32],
    ) -> Float32:
        if not len(phrases):
            return np.zeros((0, self.card.dim), np.float32)
        with self._lock:
            missing = {phrase for phrase in phrases if phrase not in known}
            # phrases of one length together: a tower's time goes with the longest phrase of a batch
            new = sorted(missing, key=lambda phrase: (len(phrase), phrase))
            for start in range(0, len(new), self._together):
                batch = new[start : start + self._together]
                known.update(zip(batch, encode(batch), strict=True))
            vectors = np.stack([known[phrase] for phrase in phrases])
            for phrase in phrases:
                known.move_to_end(phrase)
            while self._limit is not None and len(known) > self._limit:
                known.popitem(last=False)
        return vectors

    def _keep(self, path: Path) -> None:
        arrays: dict[str, Any] = {"card": np.array(self._card_text())}
        for name, known in (("texts", self._texts), ("atoms", self._atoms)):
            arrays[f"{name}_phrases"] = np.array(list(known), dtype=np.str_)
            arrays[f"{name}_vectors"] = np.stack(list(known.values())) if known else np.zeros((0, 0), np.float32)
        new = path.with_name(f".{path.name}.new")
        with new.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(new, path)  # a kill leaves the old file or the new one

    def _recall(self, path: Path) -> None:
        if not path.is_file():
            return
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["card"]) != self._card_text():
                return
            for name, known in (("texts", self._texts), ("atoms", self._atoms)):
                known.update(zip(arrays[f"{name}_phrases"].tolist(), arrays[f"{name}_vectors"], strict=True))

    def _card_text(self) -> str:
        return json.dumps(self.card.to_dict(), sort_keys=True)
