"""The reversed query as a re-ranker: a right answer with the edit undone must look like the reference.

After the symmetric check of sotayang/ZeroSight, whose language model writes the way back from each candidate. Here the
way back is CIReVL's description minus its caption, so that no candidate is shown to a model: this method is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.methods.base import Method, QueryLike
from tapr.methods.cirevl import CirevlRecord
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.types import Float32


class ReversedQuery(Method):
    name, label, order, records = "reversed", "CIReVL + reversed query", 37, (CirevlRecord,)
    help = "CIReVL's first pictures in the order of their score plus that of the way back to the reference."
    ours = "the way back is the difference of CIReVL's two texts, for the first 50 pictures; both scores count equally"
    constants: ClassVar = {"weight": (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0), "first": (20, 50, 200)}
    weight, first = 1.0, 50

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        read = [records.get(CirevlRecord, query.id) for query in queries]
        before = features.texts(record.caption for record in read)
        after = features.texts(record.description for record in read)
        forward = features.similarities(after)
        reference, gallery = features.query_vectors(queries), features.global_vectors
        count = min(self.first, len(gallery))
        for row, scores in enumerate(forward):
            top = np.flatnonzero(scores >= np.partition(scores, -count)[-count])  # equal scores together
            back = gallery[top] + (before[row] - after[row])  # (count, d): each candidate with the edit undone
            back /= np.maximum(np.linalg.norm(back, axis=1, keepdims=True), 1e-9)
            moved = scores[top] + np.float32(self.weight) * (back * reference[row]).sum(axis=1)
            scores[top] = moved - moved.min() + scores[top].min()  # the others stay behind
        return forward


ROWS = (ReversedQuery,)
