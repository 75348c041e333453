"""What pictures show, in words: captions of the decoder, put in order by the text tower, with how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from PIL import Image

from tapr.captions.decoder import BEAM_WIDTH, TEMPERATURE, Caption, Decoder
from tapr.captions.description import Description, has_captioner
from tapr.captions.sureness import chance_of_being_right
from tapr.encoders.base import Encoder, TextBulkEncoder
from tapr.encoders.registry import DEFAULT_ENCODER
from tapr.errors import BadInput, BadOption, UnfitEncoder
from tapr.types import Float32

__all__ = ["MAX_DESCRIPTIONS", "WAYS", "Captioner", "has_captioner", "load_decoder"]

WAYS = ("greedy", "beam", "sample")
MAX_DESCRIPTIONS = 50  # captions of one picture


class Captioner:
    """Describes global vectors of its encoder. The same vector gets the same words, alone or among others."""

    def __init__(self, encoder: Encoder) -> None:
        if not has_captioner(encoder.card):
            raise UnfitEncoder(
                f"the encoder {encoder.card.name} has no captioner: describe pictures with {DEFAULT_ENCODER}"
            )
        self._encoder = encoder
        self._decoder = load_decoder()

    @property
    def image_size(self) -> int:
        """Return how many pixels a picture's shorter side needs: to decode big pictures smaller."""
        return self._encoder.card.image_size

    def look(self, image: Image.Image) -> Float32:
        """Return the global vector (d,) of an RGB picture."""
        vector: Float32 = self._encoder.encode_images([self._encoder.prepare(image)]).global_vectors[0]
        return vector

    def describe_vectors(self, vectors: Float32) -> list[Description]:
        """Return the greedy description of each of (B, d); many together take less time than one after the other."""
        return [description for description, _ in self._judged(self._decoder.greedy(vectors), vectors)]

    def describe_several(self, vector: Float32, n: int, *, how: str | None = None, seed: int = 0) -> list[Description]:
        """Return at most n different descriptions of one vector (d,), the one that the text tower finds best first.

        A beam, and so a sample, has at least 3 captions to choose from. Greedy is the default for one alone.
        """
        if not 1 <= n <= MAX_DESCRIPTIONS:
            raise BadOption(f"from 1 to {MAX_DESCRIPTIONS} descriptions can be had of one picture, not {n}", "n")
        how = how or ("greedy" if n == 1 else "beam")
        if how not in WAYS:
            raise BadOption(f"unknown way to describe {how!r}: choose {', '.join(WAYS)}", "how")
        if how == "greedy" and n > 1:
            raise BadInput(f"greedy gives one description, not {n}: choose beam or sample", code="conflicting_options")
        if how == "greedy":
            captions = self._decoder.greedy(vector[None])
        elif how == "beam":
            captions = self._decoder.beam(vector, max(n, BEAM_WIDTH))
        else:
            captions = self._decoder.sample(vector, max(n, BEAM_WIDTH), seed=seed)
        different = list({caption.text: caption for caption in captions}.values())
        judged = self._judged(different, np.repeat(vector[None], len(different), axis=0))
        judged.sort(key=lambda pair: -pair[1])
        return [description for description, _ in judged[:n]]

    def sample_texts(
        self, vector: Float32, count: int, *, temperature: float = TEMPERATURE, seed: int = 0
    ) -> list[str]:
        """Sample `count` captions at random, without scores and not sorted; some may be equal."""
        return [caption.text for caption in self._decoder.sample(vector, count, temperature=temperature, seed=seed)]

    def _judged(self, captions: Sequence[Caption], vectors: Float32) -> list[tuple[Description, float]]:
        """Turn each caption into a Description, with the text tower's cosine of the caption and its vector."""
        encoder, texts = self._encoder, [caption.text for caption in captions]
        read = encoder.encode_together(texts) if isinstance(encoder, TextBulkEncoder) else encoder.encode_texts(texts)
        cosines = np.einsum("id,id->i", read, np.asarray(vectors, np.float32))
        return [
            (Description(caption.text, chance_of_being_right(caption.text, caption.log_probability, cosine)), cosine)
            for caption, cosine in zip(captions, map(float, cosines), strict=True)
        ]


@cache
def load_decoder() -> Decoder:
    """Load the decoder once in a process."""
    return Decoder()
