"""Top-k on the host, with a defined order of ties."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError
from tapr.types import Float32

_SAMPLE_SIZE = 1 << 15  # numbers of a sample from which a first threshold is taken


def best_of(scores: Float32, k: int) -> NDArray[np.int64]:
    """Positions of the k largest, descending, ties by lower position."""
    kept = largest_of(scores, k)
    order = np.argsort(-scores[kept], kind="stable")
    return kept[order[:k]].astype(np.int64)


def largest_of(scores: Float32, k: int) -> NDArray[np.int64]:
    """Positions of the k largest and of all that tie with the last of them, ascending."""
    if k < 1 or k >= len(scores):
        return np.arange(len(scores) if k else 0)
    some = _likely(scores, k)
    likely = scores if some is None else scores[some]
    threshold = np.partition(likely, len(likely) - k)[len(likely) - k]
    kept = np.flatnonzero(likely >= threshold)
    return kept if some is None else some[kept]


def _likely(scores: Float32, k: int) -> NDArray[np.int64] | None:
    """Positions that hold the k largest and few more, chosen by a sample: to order all takes much longer. None: all."""
    step = len(scores) // _SAMPLE_SIZE
    if step < 4:
        return None
    sample = scores[::step]
    rank = k // step + 4 * math.isqrt(k // step + 1) + 4  # the k-th largest is hardly ever below this one
    if rank > len(sample) // 4:
        return None
    likely = np.flatnonzero(scores >= np.partition(sample, -rank)[-rank])
    return likely if len(likely) >= k else None


def refuse_odd_scores(scores: Float32) -> Float32:
    """Raise if a score is not finite. Queries are finite, so the bank's vectors must be damaged."""
    if not math.isfinite(float(scores.sum(dtype=np.float64))):
        raise TaprError(
            "a score is infinite or not a number: the gallery's vectors are damaged; "
            "run tapr doctor --verify -g GALLERY to see which"
        )
    return scores
