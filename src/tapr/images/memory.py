"""How much memory decoding may take at a time: an estimate for each picture, one budget for all threads of a process.

A file of one kilobyte may be a picture of a hundred million pixels. The estimate is made from the headers (buffers.py),
before a pixel is decoded. Pictures that do not fit beside what is being decoded wait, in the order in which they came.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import Iterator
from functools import cache
from threading import Condition
from typing import Any

from PIL import Image

from tapr.images import buffers

TOTAL = 2**30  # bytes that all pictures in decoding may take together

BAND = 1 << 20  # pixels converted to RGB at a time
_BAND_BYTES = 32  # per pixel of a band: copies of it, as floating-point numbers where they are needed
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # of Pillow; 4 in all others
_RGB = 4
# Bytes per pixel that a format's library needs beside Pillow's own picture; measured (benchmarks/decode_memory.py)
_BESIDE = {"WEBP": 16, "PPM": 10, "BMP": 3, "DIB": 3, "ICO": 16}
_MODERN, _MODERN_DEEP = 12, 32  # AVIF and HEIF: of 8 bits, and of more
_ROW = 16  # per pixel of a row: PNG keeps two rows of up to 8 bytes per pixel
_TRIM_FROM = 64 * 2**20  # smaller decodings leave little behind


def estimate(image: Image.Image, data: bytes | None = None, factor: int = 1) -> int:
    """Bytes that it takes to load an opened picture and to convert it to RGB, reduced by `factor`.

    `data` is its file, without which the usual layout is assumed. A JPEG's own reduction has been asked for already:
    image.size is that of the pixels that will be made. The bytes of the file itself are not counted.
    """
    pixels = image.width * image.height
    own = pixels * _MODE_BYTES.get(image.mode, 4)
    loading = own + image.width * _ROW + _decoder(image, data or b"", pixels)
    if image.format == "TIFF" and data and buffers.tiff_pieces(data)[1]:
        loading += own  # Pillow turns it upright as part of loading
    converting = own + pixels // factor**2 * _RGB
    turning = 2 * (pixels // factor**2) * _RGB
    return max(loading, converting, turning) + min(pixels, BAND) * _BAND_BYTES


def icon_estimate(pixels: int) -> int:
    """Of an icon file, which Pillow decodes while it opens it; `pixels` of its largest picture."""
    return pixels * (4 + _BESIDE["ICO"] + _RGB)


def _decoder(image: Image.Image, data: bytes, pixels: int) -> int:
    """Bytes that the format's library holds beside Pillow's picture."""
    format_ = image.format or ""
    if format_ in ("JPEG", "MPO"):
        return buffers.jpeg_coefficients(data)
    if format_ == "TIFF":
        return buffers.tiff_pieces(data)[0] if data else 8 * pixels
    if format_ == "JPEG2000":
        return buffers.jpeg2000_tile(data) if data else 28 * pixels
    if format_ in ("AVIF", "HEIF"):
        deep = buffers.is_deep(data, b"av1C" if format_ == "AVIF" else b"hvcC")
        return pixels * (_MODERN_DEEP if deep else _MODERN)
    return pixels * _BESIDE.get(format_, 0)


class Budget:
    """A number of bytes shared by threads: first come, first served."""

    def __init__(self, total: int) -> None:
        self.held = 0
        self.waiting: deque[object] = deque()
        self._total, self._changed = total, Condition()

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Waits until `size` bytes are free; one that is larger than the whole budget waits until it is alone."""
        ticket = object()
        with self._changed:
            self.waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self.waiting[0] is ticket and self._fits(size))
                self.held += size
            finally:
                self.waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.held -= size
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self.held == 0 or self.held + size <= self._total


BUDGET = Budget(TOTAL)


def give_back(size: int) -> None:
    """After a large decoding: glibc keeps what was freed for the process unless it is asked not to."""
    if size >= _TRIM_FROM and (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # not glibc, or not Linux
        return None
