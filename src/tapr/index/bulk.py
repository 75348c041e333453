"""Encoders that take pictures in bulks: how many, how they are asked, and how long they will take."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import BulkEncoder, Encoder, Evidence


def bulk_of(encoder: Encoder) -> int:
    """Return how many pictures the encoder wants at once; 0 where it takes no bulks."""
    return encoder.bulk if isinstance(encoder, BulkEncoder) and encoder.bulk > 1 else 0


def encode(encoder: Encoder, pixels: Sequence[NDArray[np.uint8]]) -> Evidence:
    if isinstance(encoder, BulkEncoder) and bulk_of(encoder):
        return encoder.encode_bulk(pixels)
    return encoder.encode_images(pixels)


def time_of(encoder: Encoder, count: int, devices: int = 1) -> str:
    """Return in words how long the encoder will take, by a bulk of blank pictures; "" if it takes no bulks.

    On several devices, as many times less.
    """
    bulk, side = bulk_of(encoder), encoder.card.image_size
    if not bulk or count < 4 * bulk:
        return ""
    blank = [np.zeros((side, side, 3), np.uint8)] * bulk
    encode(encoder, blank)  # the first one is slow
    begin = time.perf_counter()
    encode(encoder, blank)
    seconds = (time.perf_counter() - begin) / bulk * count / devices
    said = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    return f", about {said} for the encoder ({count / seconds:,.0f} pictures per second), more if decoding is slower"
