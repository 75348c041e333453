"""One encoder for all of a server's threads, which remembers the phrases it has read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Encoder, EncoderCard, Evidence, Float32

PHRASES = 4096  # remembered; a vector has a few kilobytes


class SharedEncoder:
    """An Encoder around another. Phrases are encoded one by one, so that a vector never depends on its company."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._lock = Lock()  # only `prepare` is promised to be thread-safe
        self._texts: OrderedDict[str, Float32] = OrderedDict()  # each (d,)
        self._atoms: OrderedDict[str, Float32] = OrderedDict()

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

    def _remembered(
        self, texts: Sequence[str], memory: OrderedDict[str, Float32], encode: Callable[[Sequence[str]], Float32]
    ) -> Float32:
        vectors = np.empty((len(texts), self.card.dim), np.float32)
        with self._lock:
            for row, text in enumerate(texts):
                if text not in memory:
                    memory[text] = encode([text])[0]
                    if len(memory) > PHRASES:
                        memory.popitem(last=False)
                memory.move_to_end(text)
                vectors[row] = memory[text]
        return vectors
