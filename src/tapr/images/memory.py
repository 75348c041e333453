"""How much memory decoding may take at a time: an estimate for each picture, one budget for all threads of a process.

A file of one kilobyte may be a picture of a hundred million pixels. The estimate is made from the header alone; those
that do not fit beside what is being decoded wait for their turn, in the order in which they came.
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

TOTAL = 2**30  # bytes that all pictures in decoding may take together

# Bytes per pixel at the peak of decoding, of Pillow's own 4 and what the format's library needs beside them; measured,
# rounded up. Formats that are not named here decode into Pillow's 4 alone.
_PER_PIXEL = {"WEBP": 17, "JPEG2000": 28, "AVIF": 14, "HEIF": 12}
_OWN = 4
_PROGRESSIVE = 6  # a progressive JPEG's coefficients, which are held at full size
_TRIM_FROM = 64 * 2**20  # smaller decodings leave little behind


def estimate(image: Image.Image, full_pixels: int, factor: int = 1) -> int:
    """Bytes that it takes to load an opened picture and to convert it, reduced by `factor`.

    A JPEG's own reduction has been asked for already: its `full_pixels` are those of the file.
    """
    pixels = image.width * image.height
    held = full_pixels * _PROGRESSIVE if "progressive" in image.info else 0
    return held + pixels * _PER_PIXEL.get(image.format or "", _OWN) + pixels // factor**2 * _OWN


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
