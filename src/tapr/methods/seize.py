"""SEIZE: LDRE's captions; the score of the edited ones, moved by how far the edit raised or lowered a picture.

Written from the description and code of yzy-bupt/SEIZE: s = after + n min(0, d) + p max(0, d), d = after - before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.ldre import LdreRecord
from tapr.methods.records import RecordSet
from tapr.types import Float32


class Seize(Method):
    name, label, records = "seize", "SEIZE", (LdreRecord,)
    help = "The mean of the edited captions, moved by how far the edit raised or lowered each picture."
    order = 34
    ours = "the defaults of the authors' code (0.13 and 2.1) on every dataset, where they tune per dataset"
    constants: ClassVar = {"plus": (0.0, 0.13, 0.22, 0.31, 0.5), "minus": (0.0, 0.25, 0.5, 1.0, 2.1, 5.0)}
    plus, minus = 0.13, 2.1

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        read = [records.get(LdreRecord, query.id) for query in queries]
        before, after = (
            features.similarities(unit(np.stack([features.texts(texts).mean(axis=0) for texts in side])))
            for side in ([record.captions for record in read], [record.edited for record in read])
        )
        change = after - before
        moved = self.minus * np.minimum(change, 0) + self.plus * np.maximum(change, 0)
        return np.asarray(after + moved, np.float32)


ROWS = (Seize,)
