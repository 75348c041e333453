"""How a picture of any shape meets the square a tower sees, and the way back for heat maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.errors import BadInput

FITS = ("crop", "pad", "targetpad", "squash")
TARGET_RATIO = 1.25  # of targetpad: the ratio of sides that is left, as in the public code of CIReVL and LDRE
# Longer than this many times its width, a picture is cut before it is resized: 1 x 20000 pixels would become 224 x 4.5
# million. Others are resized whole, then cut: the other order rounds differently, and stored vectors are of this one.
_LONG = 8


@dataclass(frozen=True)
class Frame:
    """How a picture becomes a square.

    `crop` keeps the middle square. `pad` keeps the whole picture on a white square. `targetpad` first widens a picture
    whose sides differ by more than 1.25 with black until they differ by so much, then keeps the middle square.
    `squash` makes both sides equal, as SigLIP was trained.
    """

    size: int  # pixels a side
    fit: str = "crop"

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise BadInput(f"unknown fit {self.fit!r}: choose {', '.join(FITS)}")

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The square's left, top, right, bottom in the picture's own pixels; padding reaches outside the picture."""
        if self.fit == "squash":
            return 0.0, 0.0, float(width), float(height)
        side = max(width, height) if self.fit == "pad" else min(width, height)
        if self.fit == "targetpad":
            across, down = _target_padding(width, height)
            side = min(width + 2 * across, height + 2 * down)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def apply(self, image: Image.Image) -> NDArray[np.uint8]:
        """RGB picture -> (size, size, 3): bicubic, as CLIP was trained."""
        if self.fit == "targetpad":
            image = self._target_padded(image)
        width, height = image.size
        if self.fit == "squash":
            gap = 2.0 if max(width, height) > _LONG * min(width, height) else None
            image = image.resize((self.size, self.size), Image.Resampling.BICUBIC, reducing_gap=gap)
        elif self.fit != "pad":
            scale = self.size / min(width, height)
            wide, tall = max(self.size, round(width * scale)), max(self.size, round(height * scale))
            left, top = (wide - self.size) // 2, (tall - self.size) // 2
            if max(width, height) > _LONG * min(width, height):
                image = self._cut_and_resized(image, (left * width / wide, top * height / tall), min(width, height))
            else:
                image = image.resize((wide, tall), Image.Resampling.BICUBIC)
                image = image.crop((left, top, left + self.size, top + self.size))
        else:
            scale = self.size / max(width, height)
            wide, tall = max(1, round(width * scale)), max(1, round(height * scale))
            # in two steps where the shape is long: the filter's own table would take as much as the picture
            gap = 2.0 if max(width, height) > _LONG * min(width, height) else None
            small = image.resize((wide, tall), Image.Resampling.BICUBIC, reducing_gap=gap)
            image = Image.new("RGB", (self.size, self.size), "white")
            image.paste(small, ((self.size - wide) // 2, (self.size - tall) // 2))
        return np.asarray(image, dtype=np.uint8)

    def _target_padded(self, image: Image.Image) -> Image.Image:
        width, height = image.size
        if max(width, height) > _LONG * min(width, height):  # its padding would be as large as its longer side squared
            scale = min(1, 4 * self.size / max(width, height))
            small = max(1, round(width * scale)), max(1, round(height * scale))
            image = image.resize(small, Image.Resampling.BICUBIC, reducing_gap=2.0)
        across, down = _target_padding(*image.size)
        if not (across or down):
            return image
        widened = Image.new("RGB", (image.width + 2 * across, image.height + 2 * down))
        widened.paste(image, (across, down))
        return widened

    def _cut_and_resized(self, image: Image.Image, corner: tuple[float, float], side: int) -> Image.Image:
        """The square of the picture that begins at the corner, in one step; nothing is made that is longer than it."""
        reach = 3 * max(1, side // self.size + 1)  # how far the filter looks beyond the square
        x, y = (max(0, int(place) - reach) for place in corner)  # cut first: Pillow keeps a box as float32
        right, bottom = (
            min(whole, int(place) + side + 1 + reach) for place, whole in zip(corner, image.size, strict=True)
        )
        part = image.crop((x, y, right, bottom))
        left, top = corner[0] - x, corner[1] - y
        box = (left, top, min(part.width, left + side), min(part.height, top + side))
        return part.resize((self.size, self.size), Image.Resampling.BICUBIC, box=box)


def _target_padding(width: int, height: int) -> tuple[int, int]:
    """Pixels that `targetpad` adds at the left and the right, and above and below."""
    if max(width, height) < TARGET_RATIO * min(width, height):
        return 0, 0
    wanted = max(width, height) / TARGET_RATIO
    return max(0, int((wanted - width) / 2)), max(0, int((wanted - height) / 2))
