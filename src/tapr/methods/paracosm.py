"""Paracosm without its generated pictures: the description of the wanted picture, and the edit itself.

From the description and code of leowangtong/Paracosm (MIT), where the first vector also holds a generated picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.types import Float32


class Paracosm(Method):
    name, label, order, reads_spec = "paracosm", "Paracosm, no pictures", 38, True
    help = "The target sentence and the edit, 0.3 and 0.7; the generated picture of the original is left out."
    ours = "no picture is generated: the target sentence stands alone where the original adds a generated picture"
    constants: ClassVar = {"target_weight": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)}
    target_weight = 0.3

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        target = unit(features.texts(records.spec(query.id).target for query in queries))
        edit = unit(features.texts(query.edit for query in queries))
        weight = np.float32(self.target_weight)
        return features.similarities(weight * target + (1 - weight) * edit)


ROWS = (Paracosm,)
