"""Centring: local vectors and atoms minus what all of them share.

CLIP's vectors lie in a narrow cone. Taking away the gallery's mean local vector on the picture side, and the mean of
a fixed list of everyday phrases on the text side, leaves what tells them apart. It helps on photographs and not
everywhere (docs/models.md), so it is an option. Global vectors and whole sentences are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, EncoderCard, Evidence, unit
from tapr.encoders.wrapper import EncoderWrapper
from tapr.errors import BadInput, UnfitEncoder
from tapr.types import Float32

SUFFIX = "+centred"  # of the extractor's name in the card
PHRASES = Path(__file__).parent / "data" / "phrases.txt"


@dataclass(frozen=True, eq=False)
class Centring:
    """The two means that are subtracted; a bank stores them."""

    image_mean: Float32  # (d,)
    text_mean: Float32  # (d,)


class CentredEncoder(EncoderWrapper):
    """Any encoder, its local vectors minus `image_mean` and its atoms minus `text_mean`, at length 1 again."""

    def __init__(self, encoder: Encoder, image_mean: Float32, text_mean: Float32) -> None:
        dim = encoder.card.dim
        for name, mean in (("image", image_mean), ("text", text_mean)):
            if mean.shape != (dim,) or not np.isfinite(mean).all():
                raise BadInput(
                    f"the {name} mean must be {dim} finite numbers to centre {encoder.card.name}", code="bad_vectors"
                )
        if encoder.card.extractor.endswith(SUFFIX):
            raise UnfitEncoder(f"{encoder.card.name} with {encoder.card.extractor} is centred already")
        super().__init__(encoder)
        self.centring = Centring(np.asarray(image_mean, np.float32), np.asarray(text_mean, np.float32))
        self._card = replace(encoder.card, extractor=encoder.card.extractor + SUFFIX)

    @property
    def card(self) -> EncoderCard:
        return self._card

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        evidence = self._encoder.encode_images(prepared)
        return Evidence(evidence.global_vectors, unit(evidence.local_vectors - self.centring.image_mean))

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return unit(self._encoder.encode_atoms(texts) - self.centring.text_mean)


def phrases() -> list[str]:
    """Return the fixed list: it decides vectors, so changing it changes every centred bank made after."""
    return PHRASES.read_text(encoding="utf-8").splitlines()


def phrase_mean(encoder: Encoder) -> Float32:
    """Return the mean vector (d,) of the fixed phrases, in the encoder's template."""
    return np.asarray(encoder.encode_atoms(phrases()).mean(axis=0), np.float32)
