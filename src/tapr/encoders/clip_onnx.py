"""`clip-b16`, the offline default: OpenAI's CLIP ViT-B/16 image tower and this project's text tower on onnxruntime.

docs/models.md says where the parts come from, arithmetic.py in which numbers the image tower computes. Each picture,
and each text, is a run of its own, and runs go side by side on threads: batches gain nothing on a processor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.arithmetic import ROWS, asked_for
from tapr.encoders.base import EncoderCard, Evidence, pixels_sentence
from tapr.encoders.clip_weights import DIM, GRID, PIXEL_MEAN, PIXEL_STD
from tapr.encoders.extractors import DEFAULT_EXTRACTOR, extractor_of
from tapr.encoders.image_tower import ImageTower
from tapr.encoders.model_files import CLIP_B16_TEXT_TOWER, CLIP_B16_TOKENIZER
from tapr.encoders.text_tower import TextTower
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, Say, fetch, quiet
from tapr.errors import BadOption
from tapr.images.frame import Frame
from tapr.types import Float32
from tapr.utils.threads import thread_count

NAME = "clip-b16"
IMAGE_SIZE = 224

Item = TypeVar("Item")
Result = TypeVar("Result")


class ClipOnnxEncoder:
    """The default encoder. Towers load when first needed: a search by text alone never loads the image tower."""

    lanes = 1  # a second batch fills the processors that the end of the first leaves idle
    arithmetics: tuple[str, ...] = (ROWS,)  # the first is the default

    def __init__(
        self,
        *,
        extractor: str = DEFAULT_EXTRACTOR,
        fit: str = "crop",
        template: str = "{}",
        arithmetic: str | None = None,
        say: Say = quiet,
        threads: int | None = None,
    ) -> None:
        """Take one of `arithmetics` as `arithmetic`; None is TAPR_ARITHMETIC, or the default."""
        self.frame = Frame(IMAGE_SIZE, fit)
        if template.count("{}") != 1:
            raise BadOption(f"the text template {template!r} must contain {{}} once, where the phrase goes", "template")
        arithmetic = asked_for(arithmetic) or self.arithmetics[0]
        if arithmetic not in self.arithmetics:
            raise BadOption(
                f"{NAME} does not compute in {arithmetic} here: choose {' or '.join(self.arithmetics)}", "arithmetic"
            )
        self._threads = threads or thread_count()
        self._image_file = fetch(CLIP_B16_IMAGE_TOWER, say)
        self.card = EncoderCard(
            name=NAME,
            weights_sha256=weights_sha256(),
            dim=DIM,
            grid=GRID,
            extractor=extractor_of(extractor).name,
            image_size=IMAGE_SIZE,
            fit=fit,
            template=template,
            arithmetic=arithmetic,
            pixels=pixels_sentence(PIXEL_MEAN.tolist(), PIXEL_STD.tolist()),
        )

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self.frame.apply(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        if not len(prepared):
            return Evidence(np.zeros((0, DIM), np.float32), np.zeros((0, self.card.locals_count, DIM), np.float32))
        pairs = self._side_by_side(self._image_pool, self._image_tower.encode, prepared)
        return Evidence(np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs]))

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        if not len(texts):
            return np.zeros((0, DIM), np.float32)
        return np.stack(self._side_by_side(self._text_pool, self._text_tower.encode, map(self._sentence, texts)))

    def encode_together(self, texts: Sequence[str]) -> Float32:
        if not len(texts):
            return np.zeros((0, DIM), np.float32)
        return self._text_tower.encode_together([self._sentence(text) for text in texts])

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self.encode_texts(texts)

    def unread(self, text: str) -> str:
        read = self._text_tower.read_characters(self._sentence(text))
        return text[max(0, read - self.card.template.index("{}")) :]

    def _sentence(self, text: str) -> str:
        return self.card.template.replace("{}", text)

    def _side_by_side(
        self, pool: ThreadPoolExecutor, run: Callable[[Item], Result], items: Iterable[Item]
    ) -> list[Result]:
        items = list(items)
        if len(items) == 1 or self._threads == 1:
            return [run(item) for item in items]
        return list(pool.map(run, items))

    @cached_property
    def _image_pool(self) -> ThreadPoolExecutor:
        """Return the pool of all callers: no processor waits for the last picture of another's batch."""
        return ThreadPoolExecutor(self._threads, "tapr-image")

    @cached_property
    def _text_pool(self) -> ThreadPoolExecutor:
        """Return a pool for texts alone: a text does not wait for the pictures before it."""
        return ThreadPoolExecutor(self._threads, "tapr-text")

    @cached_property
    def _image_tower(self) -> ImageTower:
        return ImageTower(self._image_file, self.card.extractor)

    @cached_property
    def _text_tower(self) -> TextTower:
        return TextTower(CLIP_B16_TEXT_TOWER.path, CLIP_B16_TOKENIZER.path)


def weights_sha256() -> str:
    """Hash the two towers' sha256 hex digests, image tower first, written one after the other."""
    return hashlib.sha256((CLIP_B16_IMAGE_TOWER.sha256 + CLIP_B16_TEXT_TOWER.sha256).encode()).hexdigest()
