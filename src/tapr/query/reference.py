"""Reference: the picture that an edit starts from, decoded once and encoded once."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from tapr.encoders.base import Evidence
from tapr.types import Box


@dataclass(frozen=True, eq=False)
class Reference:
    """A reference picture, decoded once and encoded once."""

    image: Image.Image  # RGB, upright
    evidence: Evidence  # of this one picture: (1, d), (1, M, d)
    sha256: str  # of the file's bytes, or of the pixels when there was no file
    crop: Box | None = None  # the part of it that counts; None: all of it
    id: str | None = None  # of the gallery, when it was named by one
