"""Checks how callers name a gallery, its sources and its encoder. Wrong values are refused with one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.utils.arguments import shown_value


def folder_of(path: object) -> Path:
    """A gallery's folder."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise BadInput(f"a gallery is named by the path of its folder, not by {shown_value(path)}")
    if "\0" in os.fspath(path):
        raise BadInput("the path of a gallery holds a zero character, which no path can")
    return Path(os.path.expanduser(path))


def sources_of(images: object) -> list[str | Path]:
    """Where a gallery's pictures come from: one path or several."""
    several = [images] if isinstance(images, (str, os.PathLike)) else images
    if isinstance(several, (bytes, Mapping)) or not isinstance(several, Iterable) or hasattr(several, "read"):
        raise BadInput(f"images must be a folder, file, glob or table, or a list of them, not {shown_value(images)}")
    sources: list[str | Path] = []
    for one in several:
        if not isinstance(one, (str, os.PathLike)) or isinstance(os.fspath(one), bytes):
            raise BadInput(
                f"images are named by their paths, not by {shown_value(one)}: save the pictures to files first"
            )
        sources.append(one if isinstance(one, str) else Path(one))
    return sources


def encoder_of(encoder: object) -> str | Encoder | None:
    """An encoder, or the name of one."""
    if isinstance(encoder, type):
        raise BadInput(f"the encoder is the class {encoder.__name__}: give an encoder made with it, or a name")
    if encoder is None or isinstance(encoder, (str, Encoder)):
        return encoder
    raise BadInput(f"the encoder must be a name such as 'clip-b16' or an encoder, not {shown_value(encoder)}")
