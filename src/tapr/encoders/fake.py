"""A tiny encoder without weights: colours and words. For tests, examples and dry runs; it is not a vision model.

Colour words and coloured areas share directions of the space, so that composed searches over plain coloured
pictures have right answers: a red square is near "red", the left half of a flag near its own colour.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.images.frame import Frame
from tapr.types import Float32

COLOURS = {
    "black": (0, 0, 0), "white": (255, 255, 255), "grey": (128, 128, 128), "red": (255, 0, 0),
    "green": (0, 160, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0), "orange": (255, 150, 0),
    "purple": (128, 0, 128), "pink": (255, 150, 200), "brown": (130, 70, 20), "cyan": (0, 255, 255),
}  # fmt: skip
_PALETTE = np.array(list(COLOURS.values()), dtype=np.float32) / 255  # (12, 3)
_SIZE = 32
_TOKENS = 77


class FakeEncoder:
    """Deterministic on every machine: d = 32 (12 colours, 20 hashed word directions), a grid of 3 x 3 or as asked."""

    def __init__(self, grid: tuple[int, int] = (3, 3), fit: str = "crop") -> None:
        self.frame = Frame(_SIZE, fit)
        digest = hashlib.sha256(b"tapr fake encoder 1").hexdigest()
        self.card = EncoderCard("fake", digest, 32, grid, "tokens", _SIZE, fit)

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self.frame.apply(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        if not len(prepared):
            return Evidence(
                np.zeros((0, self.card.dim), np.float32),
                np.zeros((0, self.card.locals_count, self.card.dim), np.float32),
            )
        pixels = np.stack(prepared).astype(np.float32) / 255  # (B, S, S, 3)
        rows, columns = self.card.grid
        cells = [
            self._colours(cell)
            for band in np.array_split(pixels, rows, axis=1)
            for cell in np.array_split(band, columns, axis=2)
        ]
        return Evidence(self._colours(pixels), np.stack(cells, axis=1))

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        return unit(np.stack([self._words(text) for text in texts])) if len(texts) else np.zeros((0, 32), np.float32)

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self.encode_texts(texts)

    def unread(self, text: str) -> str:
        return " ".join(re.findall(r"\w+", text)[_TOKENS:])

    def _colours(self, pixels: NDArray[Any]) -> Float32:
        """Map (B, h, w, 3) to (B, 32): how much of each palette colour there is, and a trace of the mean colour."""
        distance = ((pixels[..., None, :] - _PALETTE) ** 2).sum(-1)  # (B, h, w, 12)
        share = np.exp(-distance / 0.05)
        share = share / share.sum(-1, keepdims=True)
        vectors = np.zeros((len(pixels), self.card.dim), np.float32)
        vectors[:, : len(COLOURS)] = share.mean(axis=(1, 2))
        vectors[:, -3:] = 0.1 * pixels.mean(axis=(1, 2))
        return unit(vectors)

    def _words(self, text: str) -> Float32:
        vector = np.zeros(self.card.dim, np.float32)
        for word in re.findall(r"\w+", text.lower())[:_TOKENS]:
            if word in COLOURS:
                vector[list(COLOURS).index(word)] += 1
            else:
                seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
                direction = np.random.default_rng(seed).standard_normal(self.card.dim - len(COLOURS))
                vector[len(COLOURS) :] += 0.2 * unit(direction)
        return vector
