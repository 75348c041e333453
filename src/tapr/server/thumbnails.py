"""Pictures for browsers: cached thumbnails, and full pictures in a format that browsers support."""

from __future__ import annotations

import io
from dataclasses import dataclass

from PIL import Image

from tapr.images.decode import View
from tapr.images.workers import decode_apart
from tapr.utils.lru import LRU

MAX_CACHE_BYTES = 64 * 2**20  # thumbnails in memory
_AS_THEY_ARE = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_SCREEN_SIDE = 2048  # minimum length of the shorter side of a converted picture, times two
_FLAT_PIXELS = 128 * 128  # up to this size PNG is small and keeps drawings sharp


@dataclass(frozen=True)
class Picture:
    data: bytes
    media_type: str


class Thumbnails:
    """A cache of thumbnails, by content and size."""

    def __init__(self) -> None:
        self._kept: LRU[tuple[str, int], Picture] = LRU(MAX_CACHE_BYTES, lambda picture: len(picture.data))

    def find(self, version: str, size: int) -> Picture | None:
        return self._kept.get((version, size))

    def make(self, version: str, size: int, data: bytes) -> Picture:
        picture = encoded(thumbnail(data, size))
        self._kept.put((version, size), picture)
        return picture


def thumbnail(data: bytes, size: int) -> Image.Image:
    """Decode a picture file so that its longer side has at most `size` pixels."""
    return Image.fromarray(decode_apart(data, [View(size, longest=size)]).views[0])


def encoded(image: Image.Image) -> Picture:
    png = image.mode == "RGBA" or image.width * image.height <= _FLAT_PIXELS
    buffer = io.BytesIO()
    if png:
        image.save(buffer, "PNG")
    else:
        image.save(buffer, "JPEG", quality=86)
    return Picture(buffer.getvalue(), "image/png" if png else "image/jpeg")


def whole(data: bytes) -> Picture:
    """The file itself if browsers support its format, otherwise the picture as PNG. Other files are refused."""
    media_type = next((kind for head, kind in _AS_THEY_ARE.items() if data.startswith(head)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        media_type = "image/webp"
    if media_type is not None:
        thumbnail(data, 1)  # only checks that it can be decoded
        return Picture(data, media_type)
    return Picture(decode_apart(data, [View(_SCREEN_SIDE, png=True)]).views[0].tobytes(), "image/png")
