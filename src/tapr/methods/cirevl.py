"""CIReVL: caption the reference, rewrite the caption under the edit, search with the rewritten text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tapr.encoders.base import Float32
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet


class CirevlRecord(Payload):
    """Two calls: `caption` says what the reference shows, `description` the same after the edit."""

    kind: ClassVar[str] = "cirevl"
    caption: str
    description: str


class Cirevl(Method):
    name, label, kinds = "cirevl", "CIReVL", (CirevlRecord.kind,)

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        descriptions = [records.get(CirevlRecord, query.id).description for query in queries]
        return features.similarities(features.texts(descriptions))
