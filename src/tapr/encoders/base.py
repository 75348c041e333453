"""What every encoder gives: pictures and phrases as unit vectors of one joint space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.arithmetic import ONLY
from tapr.types import Float32


@dataclass(frozen=True)
class EncoderCard:
    """All that decides an encoder's vectors. Banks store it; two cards that differ refuse to mix.

    Only their arithmetic may differ, where the vectors agree.
    """

    name: str  # as given to `--encoder`: clip-b16, open_clip:ViT-L-14/laion2b_s32b_b82k, fake
    weights_sha256: str  # over the weight files, in the order image tower, text tower
    dim: int  # d
    grid: tuple[int, int]  # rows, columns of the local vectors; M = rows * columns
    extractor: str  # how the local vectors are read: see encoders/local_tokens.py
    image_size: int  # pixels a side of the square the tower sees
    fit: str  # "crop" (shorter side to image_size, middle cut out) "pad", "targetpad": see images/frame.py
    template: str = "{}"  # the sentence a phrase is put into before it is encoded
    arithmetic: str = ONLY  # in which numbers the image tower computed: see encoders/arithmetic.py
    # what is done to pixels, in words; not compared, because the digest covers what towers have that differs
    pixels: str = field(default="", compare=False)

    @property
    def locals_count(self) -> int:
        return self.grid[0] * self.grid[1]  # M

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "grid": list(self.grid)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> EncoderCard:
        return cls(**{**value, "grid": tuple(value["grid"])})


def pixels_sentence(mean: Sequence[float], std: Sequence[float]) -> str:
    """Return the card's `pixels` of a tower whose pictures are made by Frame."""
    shown = (", ".join(f"{value:.4g}" for value in values) for values in (mean, std))
    return "bicubic; mean {}; deviation {}".format(*shown)


@dataclass(frozen=True)
class Evidence:
    """The vectors of B pictures: one global and M local unit vectors each."""

    global_vectors: Float32  # (B, d)
    local_vectors: Float32  # (B, M, d), row by row over the grid

    def __len__(self) -> int:
        return len(self.global_vectors)

    def __getitem__(self, index: slice) -> Evidence:
        return Evidence(self.global_vectors[index], self.local_vectors[index])


@runtime_checkable
class Encoder(Protocol):
    """A frozen vision-language model. `prepare` is thread-safe, so that pictures are readied while others encode.

    A picture's vectors depend on that picture alone, never on what else is in its batch: an index that was
    interrupted and resumed is the index that was not.
    """

    @property
    def card(self) -> EncoderCard: ...

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        """Crop or pad an RGB picture, as the card says, to (image_size, image_size, 3).

        An encoder with an attribute `frame` (a Frame) does here what that frame does, and no more. A worker process
        then does it in place of the encoder, right after it has decoded the picture.
        """

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        """Encode B prepared pictures: Evidence with vectors (B, d) and (B, M, d)."""

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        """Encode phrases, (B, d), to be compared with global vectors."""

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        """Encode phrases, (B, d), to be compared with local vectors; differs from encode_texts only when centred."""

    def unread(self, text: str) -> str:
        """Return the end of the text that lies past the text tower's limit and is not read; "" when all of it is."""


@runtime_checkable
class BulkEncoder(Encoder, Protocol):
    """An encoder that is fast in large batches: as many processes decode pictures as there are processors."""

    @property
    def bulk(self) -> int:
        """Return how many pictures it wants at once; 1 where it is not so fast."""

    def encode_bulk(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        """Encode prepared pictures in the fp16 that a bank stores."""


@runtime_checkable
class ConcurrentEncoder(Encoder, Protocol):
    """An encoder that several threads may ask at a time."""

    @property
    def lanes(self) -> int:
        """Return how many batches it works on at once."""


@runtime_checkable
class ComposingEncoder(Encoder, Protocol):
    """A multimodal embedder: it also gives one vector for a picture and words together.

    Such models (MagicLens, Qwen3-VL-Embedding) have one vector per picture: their card has a grid of 1 x 1, and the
    only local vector is the global one.
    """

    def encode_composed(self, prepared: Sequence[NDArray[np.uint8]], texts: Sequence[str]) -> Float32:
        """Encode B prepared pictures and an edit each, (B, d), to be compared with global vectors."""


@runtime_checkable
class TextBulkEncoder(Encoder, Protocol):
    """An encoder that reads many texts in less time than one after the other."""

    def encode_together(self, texts: Sequence[str]) -> Float32:
        """Encode texts as encode_texts does, up to rounding; a text's vector does not depend on the others."""


def unit(vectors: NDArray[Any]) -> Float32:
    """L2-normalise the last axis; a zero vector stays zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)
