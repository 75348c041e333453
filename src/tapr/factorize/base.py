"""What a factorizer is: (reference picture, edit) in, one EditSpec out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from PIL import Image

from tapr.encoders.base import Evidence
from tapr.spec import EditSpec

Box = tuple[float, float, float, float]  # left, top, right, bottom: parts of a picture's width and height


@dataclass(frozen=True, eq=False)
class Reference:
    """A reference picture, decoded once and encoded once."""

    image: Image.Image  # RGB, upright
    evidence: Evidence  # of this one picture: (1, d), (1, M, d)
    sha256: str  # of the file's bytes, or of the pixels when there was no file
    crop: Box | None = None  # the part of it that counts; None: all of it


@dataclass(frozen=True)
class Factorization:
    """A spec and what made it; notes are sentences for the person who asked (what was not understood, ...)."""

    spec: EditSpec
    factorizer: str  # its name, with model or version: "grounded/1", "openai:qwen3.6-27b", "records", "given"
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON-ready: tags, tokens used, tries, prompt hash, ...


class Factorizer(Protocol):
    @property
    def name(self) -> str: ...

    def factorize(self, reference: Reference, edit: str) -> Factorization: ...
