"""Top-k on the host, with a defined order of ties."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError
from tapr.types import Float32


def best_of(scores: Float32, k: int) -> NDArray[np.int64]:
    """Positions of the k largest, descending, ties by lower position."""
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)  # the k best and everything that ties with the last
    else:
        kept = np.arange(len(scores))
    order = np.argsort(-scores[kept], kind="stable")
    return kept[order[:k]].astype(np.int64)


def refuse_odd_scores(scores: Float32) -> Float32:
    """Raise if a score is not finite. Queries are finite, so the bank's vectors must be damaged."""
    if not math.isfinite(float(scores.sum(dtype=np.float64))):
        raise TaprError(
            "a score is infinite or not a number: the gallery's vectors are damaged; "
            "run tapr doctor --verify -g GALLERY to see which"
        )
    return scores
