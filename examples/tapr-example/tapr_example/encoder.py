"""The encoder `mean-colour`: red, green and blue of a picture and of its four quarters, and of colour words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor

from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.encoders.row import EncoderRow, EncoderSetting, ListedModel
from tapr.images.frame import Frame
from tapr.types import Float32

SIZE = 16


class MeanColour:
    """d = 4: red, green, blue and a constant, so that black is a vector too. A grid of 2 x 2."""

    def __init__(self, fit: str) -> None:
        self.frame = Frame(SIZE, fit)
        digest = hashlib.sha256(b"mean colour 1").hexdigest()  # what decides the vectors: there are no weights
        self.card = EncoderCard("mean-colour", digest, 4, (2, 2), "tokens", SIZE, fit)

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self.frame.apply(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        pixels = np.stack(prepared).astype(np.float32) / 255  # (B, S, S, 3)
        half = SIZE // 2
        cells = pixels.reshape(len(pixels), 2, half, 2, half, 3).mean(axis=(2, 4)).reshape(len(pixels), 4, 3)
        return Evidence(_vectors(cells.mean(axis=1)), _vectors(cells))

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        return np.stack([self._text(text) for text in texts]) if len(texts) else np.zeros((0, 4), np.float32)

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self.encode_texts(texts)

    def unread(self, text: str) -> str:
        return ""

    def _text(self, text: str) -> Float32:
        named = [ImageColor.getrgb(word)[:3] for word in text.lower().split() if word in ImageColor.colormap]
        colours = named or [(128, 128, 128)]  # words without a colour are grey
        return _vectors(np.array(colours, np.float32).mean(axis=0) / 255)


def _vectors(colours: NDArray[Any]) -> Float32:
    """(..., 3) -> (..., 4) unit vectors, centred so that opposite colours point apart."""
    constant = np.full((*colours.shape[:-1], 1), 0.2, np.float32)
    return unit(np.concatenate([colours - 0.5, constant], axis=-1))


def load(setting: EncoderSetting) -> MeanColour:
    setting.only_cpu()
    setting.only_extractor("tokens")
    setting.no_template()
    return MeanColour(setting.fit)


MEAN_COLOUR = EncoderRow(
    "mean-colour",
    load,
    models=(ListedModel("mean-colour", 4, 4, ("tokens",), "no weights: mean colours", "MIT"),),
)
