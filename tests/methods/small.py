"""A world of three pictures and a few phrases whose vectors are written down, so that scores follow by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapr.encoders.base import EncoderCard, unit
from tapr.encoders.fake import FakeEncoder
from tapr.methods import Features, RecordSet
from tapr.search.memory_bank import MemoryBank
from tapr.types import Float32

GLOBALS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.6, 0, 0.8, 0]], np.float32)  # a, b, c
LOCALS = np.array(
    [
        [[1, 0, 0, 0], [0, 0, 1, 0]],
        [[0, 1, 0, 0], [0, 0, 0, 1]],
        [[0.6, 0, 0.8, 0], [0, 0, 1, 0]],
    ],
    np.float32,
)
NAMES = ("a", "b", "c")
PHRASES = {
    "x": (1, 0, 0, 0), "y": (0, 1, 0, 0), "z": (0, 0, 1, 0), "w": (0, 0, 0, 1),
    "xz": (0.6, 0, 0.8, 0), "xy": (0.6, 0.8, 0, 0),
}  # fmt: skip


class WrittenEncoder(FakeEncoder):
    """Texts have the vectors of PHRASES; an unknown text is a mistake of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.card = EncoderCard("written", "", 4, (1, 2), "tokens", 32, "crop")

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        return unit(np.array([PHRASES[text] for text in texts], np.float32).reshape(-1, 4))


@dataclass(frozen=True)
class Question:
    id: str = "q"
    reference: str = "a"
    edit: str = "y"


def world() -> Features:
    bank = MemoryBank.of(GLOBALS, LOCALS)
    return Features.of(WrittenEncoder(), bank, {name: row for row, name in enumerate(NAMES)}, NAMES)


def records(**payloads: Mapping[str, Any]) -> RecordSet:
    return RecordSet({"q": {kind.replace("_", "-"): payload for kind, payload in payloads.items()}}, "hand")
