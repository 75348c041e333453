"""A captioner for the fake encoder: it names the colours it sees, and what it draws differs from place to place."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.captions import captioner
from tapr.captions.description import Description
from tapr.encoders.base import Encoder, EncoderCard
from tapr.encoders.fake import COLOURS
from tapr.types import Float32

DRAWN = ("a {} flag", "the {} banner", "", "a {} flag on a pole", "a {} cloth")


class ColourCaptioner:
    def __init__(self, encoder: Encoder) -> None:
        self.batches: list[int] = []

    def describe_vectors(self, vectors: Float32) -> list[Description]:
        self.batches.append(len(vectors))
        return [Description(f"a {seen(vector)} flag", 0.9) for vector in vectors]

    def sample_texts(self, vector: Float32, count: int, *, temperature: float, seed: int) -> list[str]:
        return [DRAWN[(seed + place) % len(DRAWN)].format(seen(vector)) for place in range(count)]


def seen(vector: Float32) -> str:
    """The strongest colour."""
    return list(COLOURS)[int(np.argmax(vector[: len(COLOURS)]))]


def give_captioner(patch: pytest.MonkeyPatch) -> None:
    """The fake encoder has a captioner for the length of a test."""

    def has(card: EncoderCard) -> bool:
        return card.name == "fake"

    patch.setattr(captioner, "has_captioner", has)
    patch.setattr(captioner, "Captioner", ColourCaptioner)
