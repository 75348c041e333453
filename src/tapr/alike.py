"""Which pictures of a ranking are equal, or nearly: they can be shown as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput

ALIKE = 0.97  # cosine of global vectors: in real photos of clip-b16, two shots of one thing in a row (docs/serving.md)
_ROUNDING = 1e-6  # of the cosine of a vector with itself
MOST = 2000  # places of a ranking that are compared with each other


def checked_alike(value: float, places: int) -> float:
    if isinstance(value, bool) or not (math.isfinite(value) and 0 < value <= 1):
        raise BadInput(f"collapse is a cosine above 0 and up to 1, such as {ALIKE}, not {value!r}")
    if places > MOST:
        raise BadInput(f"collapse compares the first {MOST:,} places of a ranking: ask for fewer, or without it")
    return float(value)


def first_alike(global_vectors: NDArray[Any], hashes: Sequence[str], cosine: float) -> list[int | None]:
    """(P, d) in the order of the ranking -> per picture the first shown picture that it is alike, or None: shown.

    Alike: files with the same hash, or a cosine of at least `cosine`. Only shown pictures are compared with, so that a
    chain of small differences does not end in another picture.
    """
    vectors = np.asarray(global_vectors, np.float32)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    shown: list[int] = []
    of_shown = np.empty_like(vectors)
    by_hash: dict[str, int] = {}
    found: list[int | None] = []
    for place, (vector, sha256) in enumerate(zip(vectors, hashes, strict=True)):
        same = by_hash.get(sha256)
        if same is None:
            near = np.flatnonzero(of_shown[: len(shown)] @ vector >= cosine - _ROUNDING)
            same = shown[int(near[0])] if len(near) else None
        if same is None:
            of_shown[len(shown)] = vector
            shown.append(place)
        by_hash.setdefault(sha256, place if same is None else same)
        found.append(same)
    return found
