"""Small pictures with known content for the fake encoder, and galleries of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tapr.encoders.fake import COLOURS


def flag(*colours: str, size: tuple[int, int] = (48, 48)) -> Image.Image:
    """Vertical stripes."""
    image = Image.new("RGB", size)
    width = size[0] / len(colours)
    for i, colour in enumerate(colours):
        image.paste(COLOURS[colour], (round(i * width), 0, round((i + 1) * width), size[1]))
    return image


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def write_flags(folder: Path, flags: Sequence[Sequence[str]]) -> list[Path]:
    """One file a flag, named after its colours: red-blue.png."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{'-'.join(colours)}.png" for colours in flags]
    for path, colours in zip(paths, flags, strict=True):
        path.write_bytes(png(flag(*colours)))
    return paths


SOME_FLAGS = [
    ("red", "white", "blue"), ("red", "white", "green"), ("blue", "yellow", "red"), ("green", "white", "orange"),
    ("black", "red", "yellow"), ("white", "blue", "red"), ("purple", "white"), ("red",), ("blue",), ("green",),
]  # fmt: skip
