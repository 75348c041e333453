"""How a picture of any shape meets the square a tower sees, and the way back for heat maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.errors import BadInput

FITS = ("crop", "pad")


@dataclass(frozen=True)
class Frame:
    """`crop` keeps the middle square of the picture; `pad` keeps the whole picture on a white square."""

    size: int  # pixels a side
    fit: str = "crop"

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise BadInput(f"unknown fit {self.fit!r}: choose {' or '.join(FITS)}")

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The square's left, top, right, bottom in the picture's own pixels; `pad` reaches outside the picture."""
        side = min(width, height) if self.fit == "crop" else max(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def apply(self, image: Image.Image) -> NDArray[np.uint8]:
        """RGB picture -> (size, size, 3): bicubic, as CLIP was trained."""
        width, height = image.size
        if self.fit == "crop":
            scale = self.size / min(width, height)
            wide, tall = max(self.size, round(width * scale)), max(self.size, round(height * scale))
            image = image.resize((wide, tall), Image.Resampling.BICUBIC)
            left, top = (wide - self.size) // 2, (tall - self.size) // 2
            image = image.crop((left, top, left + self.size, top + self.size))
        else:
            scale = self.size / max(width, height)
            wide, tall = max(1, round(width * scale)), max(1, round(height * scale))
            small = image.resize((wide, tall), Image.Resampling.BICUBIC)
            image = Image.new("RGB", (self.size, self.size), "white")
            image.paste(small, ((self.size - wide) // 2, (self.size - tall) // 2))
        return np.asarray(image, dtype=np.uint8)
