"""SoFT on CIReVL: the base score, raised by what the target must show and lowered by what it must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.encoders.base import Float32
from tapr.methods.base import Asked, Method
from tapr.methods.cirevl import Cirevl, CirevlRecord
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet


class SoftRecord(Payload):
    """One call: a sentence of what the target must show and one of what it must not."""

    kind: ClassVar[str] = "soft"
    prescriptive: str
    proscriptive: str


class SoftOnCirevl(Method):
    name, label, kinds = "soft", "CIReVL + SoFT", (CirevlRecord.kind, SoftRecord.kind)
    strength = 1.0  # lambda on CIReVL

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        base = Cirevl().score(queries, records, features)
        read = [records.get(SoftRecord, query.id) for query in queries]
        wanted = features.similarities(features.texts(record.prescriptive for record in read))
        unwanted = features.similarities(features.texts(record.proscriptive for record in read))
        return filtered(base, wanted, unwanted, self.strength)


def filtered(base: Float32, wanted: Float32, unwanted: Float32, strength: float) -> Float32:
    """(1 - l) b + l b (r + 1 - p) / 2"""
    return np.asarray((1 - strength) * base + strength * base * (wanted + 1 - unwanted) / 2, np.float32)
