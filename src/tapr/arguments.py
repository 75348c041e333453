"""What callers hand to the public functions: read as it was meant, or refused in one sentence."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.spec import EditSpec


def folder_of(path: object) -> Path:
    """A gallery's folder."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise BadInput(f"a gallery is named by the path of its folder, not by {_a(path)}")
    if "\0" in os.fspath(path):
        raise BadInput("the path of a gallery holds a zero character, which no path can")
    return Path(os.path.expanduser(path))


def sources_of(images: object) -> list[str | Path]:
    """Where a gallery's pictures come from: one path or several."""
    several = [images] if isinstance(images, (str, os.PathLike)) else images
    if isinstance(several, (bytes, Mapping)) or not isinstance(several, Iterable) or hasattr(several, "read"):
        raise BadInput(f"images must be a folder, file, glob or table, or a list of them, not {_a(images)}")
    sources: list[str | Path] = []
    for one in several:
        if not isinstance(one, (str, os.PathLike)) or isinstance(os.fspath(one), bytes):
            raise BadInput(f"images are named by their paths, not by {_a(one)}: save the pictures to files first")
        sources.append(one if isinstance(one, str) else Path(one))
    return sources


def encoder_of(encoder: object) -> str | Encoder | None:
    """An encoder, or the name of one."""
    if isinstance(encoder, type):
        raise BadInput(f"the encoder is the class {encoder.__name__}: give an encoder made with it, or a name")
    if encoder is None or isinstance(encoder, (str, Encoder)):
        return encoder
    raise BadInput(f"the encoder must be a name such as 'clip-b16' or an encoder, not {_a(encoder)}")


def edit_and_spec(edit: object, spec: object) -> tuple[str | None, EditSpec | None]:
    """An edit in words, or a spec; a spec may also stand in the edit's place, and be a mapping."""
    if isinstance(edit, (EditSpec, Mapping)):
        if spec is not None:
            raise BadInput("give an edit or a spec, not both")
        edit, spec = None, edit
    if edit is not None and not isinstance(edit, str):
        raise BadInput(f"the edit must be a sentence or an EditSpec, not {_a(edit)}")
    if isinstance(spec, (str, os.PathLike)):
        raise BadInput("spec must be an EditSpec: a sentence is the edit, and EditSpec.from_file reads a file")
    if isinstance(spec, Mapping):
        spec = EditSpec.from_dict(spec)
    if spec is not None and not isinstance(spec, EditSpec):
        raise BadInput(f"spec must be an EditSpec or a mapping with a target, not {_a(spec)}")
    return edit, spec


def count(value: object, name: str) -> int:
    """A whole number of 1 or more; NumPy's integers too."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise BadInput(f"{name} must be a whole number, not {_a(value)}")
    if number < 1:
        raise BadInput(f"{name} must be 1 or more, not {number}")
    return number


def number_above_zero(value: Any, name: str) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} must be a number above 0, not {_a(value)}")
    return number


def text_or_none(value: object, name: str, example: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be text such as {example!r}, not {_a(value)}")
    return value


def _a(value: object) -> str:
    """What was given, short enough for a sentence."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        try:
            shown = repr(value)
        except ValueError:  # Python writes no number of more than 4300 digits
            return "so large a number"
        return shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"a value of the type {type(value).__name__}"
