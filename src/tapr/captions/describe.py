"""Captions: a picture's global vector in, a sentence out. The parts are loaded when a picture is described."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, overload

from PIL import Image

from tapr.captions.description import Description, has_captioner

if TYPE_CHECKING:
    from tapr.captions.captioner import Captioner
    from tapr.encoders.base import Encoder

__all__ = ["Description", "describe", "has_captioner"]

Picture = str | Path | bytes | Image.Image


@overload
def describe(
    picture: Picture, n: None = None, *, how: str | None = None, seed: int = 0, encoder: Encoder | None = None
) -> Description: ...


@overload
def describe(
    picture: Picture, n: int, *, how: str | None = None, seed: int = 0, encoder: Encoder | None = None
) -> list[Description]: ...


def describe(
    picture: Picture, n: int | None = None, *, how: str | None = None, seed: int = 0, encoder: Encoder | None = None
) -> Description | list[Description]:
    """Say what a picture shows: one Description, or with `n` at most n different ones, the most fitting first.

    `how` is "greedy" (the most likely word each time: what galleries keep, and the default for one description), "beam"
    (whole sentences weighed against each other: a little better, slower, and the default for several) or "sample"
    (drawn by chance with `seed`, for variety). The encoder is clip-b16, the only one with a captioner.
    """
    from tapr.images.decode import load_image

    captioner = _captioner() if encoder is None else _captioner_of(encoder)
    image = load_image(Path(picture).expanduser() if isinstance(picture, str) else picture, side=captioner.image_size)
    vector = captioner.look(image)
    descriptions = captioner.describe_several(vector, 1 if n is None else n, how=how, seed=seed)
    return descriptions[0] if n is None else descriptions


@cache
def _captioner() -> Captioner:
    from tapr.encoders.registry import load_encoder

    return _captioner_of(load_encoder())


def _captioner_of(encoder: Encoder) -> Captioner:
    from tapr.captions.captioner import Captioner

    return Captioner(encoder)
