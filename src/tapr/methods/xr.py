"""XR's first two stages: one description of the wanted picture ranks captions and pictures; the two ranks are fused.

From the description and code of 01yzzyu/xr.github.io (arXiv 2601.14245): reciprocal rank fusion with k = 60. Its third
stage asks a language model about the first pictures and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.methods.weimocir import mean_captions
from tapr.search.similarity import similarities
from tapr.types import Float32


class Xr(Method):
    name, label, order, reads_spec, reads_captions = "xr", "XR, two stages", 39, True, True
    help = "The ranks of every picture and of its captions for the target sentence, fused by 1 / (60 + rank)."
    ours = "one target sentence instead of two descriptions; the questions of the third stage are left out"
    constants: ClassVar = {"offset": (5, 20, 60, 200)}
    offset = 60

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        target = features.texts(records.spec(query.id).target for query in queries)
        by_picture = features.similarities(target)
        by_caption = similarities(target, mean_captions(features))
        return np.asarray(sum(1 / (self.offset + ranks(scores)) for scores in (by_picture, by_caption)), np.float32)


ROWS = (Xr,)


def ranks(scores: Float32) -> Float32:
    """(Q, N) -> (Q, N): ranks from 1, the highest score first; equal scores share a rank."""
    higher = [len(row) - np.searchsorted(np.sort(row), row, side="right") for row in scores]
    return np.asarray(np.stack(higher) + 1, np.float32)
