"""An encoder around another one: the base of encoders that change or cache a part of what it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Encoder, EncoderCard, Evidence
from tapr.images.frame import Frame
from tapr.types import Float32


class EncoderWrapper:
    """Passes every call on to another encoder. Subclasses override what differs."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def card(self) -> EncoderCard:
        return self._encoder.card

    @property
    def frame(self) -> Frame | None:
        return getattr(self._encoder, "frame", None)

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self._encoder.prepare(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        return self._encoder.encode_images(prepared)

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        return self._encoder.encode_texts(texts)

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self._encoder.encode_atoms(texts)

    def unread(self, text: str) -> str:
        return self._encoder.unread(text)


def innermost(encoder: Encoder) -> Encoder:
    """Return the encoder itself, without what caches or centres it."""
    while isinstance(encoder, EncoderWrapper):
        encoder = encoder._encoder
    return encoder
