"""PDV-F: the edit as a direction between two captions, added to the reference's picture and text vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.cirevl import CirevlRecord
from tapr.methods.features import Features
from tapr.methods.ldre import Ldre, LdreRecord
from tapr.methods.records import RecordSet
from tapr.types import Float32

_SCALES = (0.8, 1.0, 1.2, 1.4, 1.8)
CONSTANTS = {"balance": (0.4, 0.6, 0.75, 0.9, 1.0), "image_scale": _SCALES, "text_scale": _SCALES}


class PdvOnCirevl(Method):
    name, label, records = "pdv-cirevl", "CIReVL + PDV-F", (CirevlRecord,)
    help = "The edit as a direction between CIReVL's two texts, added to the reference's vectors."
    order = 40
    constants: ClassVar = CONSTANTS
    balance, image_scale, text_scale = 0.75, 1.4, 1.2

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        read = [records.get(CirevlRecord, query.id) for query in queries]
        before = features.texts(record.caption for record in read)
        after = features.texts(record.description for record in read)
        reference = features.query_vectors(queries)
        return features.similarities(fuse(reference, before, after, self.balance, self.image_scale, self.text_scale))


class PdvOnLdre(Method):
    name, label, records, whole = "pdv-ldre", "LDRE + PDV-F", (LdreRecord,), True
    help = "The edit as a direction between LDRE's two means, added to the reference's vectors."
    order = 41
    constants: ClassVar = CONSTANTS
    balance, image_scale, text_scale = 0.75, 1.4, 1.4

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        before, after = Ldre().composed(queries, records, features)
        reference = features.query_vectors(queries)
        return features.similarities(fuse(reference, before, after, self.balance, self.image_scale, self.text_scale))


ROWS = (PdvOnCirevl, PdvOnLdre)


def fuse(
    reference: Float32, before: Float32, after: Float32, balance: float, image_scale: float, text_scale: float
) -> Float32:
    """(Q, d) each -> unit[(1 - b)(v_r + a_I delta) + b (t_0 + a_T delta)], delta = t_c - t_0."""
    delta = after - before
    moved = (1 - balance) * (reference + image_scale * delta) + balance * (before + text_scale * delta)
    return unit(np.asarray(moved, np.float32))
