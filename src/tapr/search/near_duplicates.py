"""Finds near duplicates in a ranking, so that they can be shown as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.gallery import Gallery
from tapr.utils.weak_cache import cached_for

NEAR_DUPLICATE = 0.97  # cosine of global vectors: with clip-b16, two consecutive shots of one thing (docs/matching.md)
SHARE = 0.99  # share of pictures whose nearest different picture must not count as a duplicate
_SAMPLE = 512  # pictures
_EQUAL = 0.9995  # exact copies do not show how similar different pictures are
_ROUNDING = 1e-6  # rounding of a vector's cosine with itself
MAX_PLACES = 2000  # longest ranking that is compared


def usual(gallery: Gallery) -> float:
    """The cosine from which pictures of this gallery count as near duplicates.

    Photos of different things are far apart; drawings in one style are not. So it is NEAR_DUPLICATE, or higher: what 99
    of 100 pictures of a sample do not reach with any other picture.
    """

    def measure() -> float:
        if gallery.row_count < 2:
            return NEAR_DUPLICATE
        rows = np.unique(np.linspace(0, gallery.row_count - 1, _SAMPLE).astype(np.int64))
        cosines = _cosines(gallery.gather(rows).global_vectors)
        cosines[cosines >= _EQUAL] = -1  # also with itself
        return min(1.0, max(NEAR_DUPLICATE, round(float(np.quantile(cosines.max(axis=1), SHARE)), 4)))

    return cached_for(gallery.stored, "usual near duplicates", measure)


def _cosines(global_vectors: NDArray[Any]) -> NDArray[np.float32]:
    vectors = _unit(global_vectors)
    return np.asarray(vectors @ vectors.T)


def _unit(global_vectors: NDArray[Any]) -> NDArray[np.float32]:
    vectors = np.asarray(global_vectors, np.float32)
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))


def first_near_duplicates(global_vectors: NDArray[Any], hashes: Sequence[str], cosine: float) -> list[int | None]:
    """(P, d) in ranking order -> per picture, the first shown picture that it duplicates; None: it is shown.

    Duplicates have the same file hash, or a cosine of at least `cosine`. Only shown pictures are compared, so that a
    chain of small differences cannot hide a different picture.
    """
    vectors = _unit(global_vectors)
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
