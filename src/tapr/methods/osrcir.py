"""OSrCIR: one reflective look at picture and edit gives the target's description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tapr.encoders.base import Float32
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet


class OsrcirRecord(Payload):
    """One call: what is seen, what the edit means, what follows, and the target; only the last is scored."""

    kind: ClassVar[str] = "osrcir"
    description: str
    thoughts: str
    reflections: str
    target: str


class Osrcir(Method):
    name, label, kinds = "osrcir", "OSrCIR", (OsrcirRecord.kind,)

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.texts(records.get(OsrcirRecord, query.id).target for query in queries))
