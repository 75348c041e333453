"""SoFT on CIReVL: the base score, raised by what the target must show and lowered by what it must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tapr.encoders.base import Float32
from tapr.methods.base import Asked, Method
from tapr.methods.cirevl import Cirevl, CirevlRecord
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, Words

_PROMPT = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Write two short sentences about the wanted picture. The first says everything that it must show. The second \
names what it
must not show, as if it were there, without any "no" or "not". Answer with JSON only:
{"prescriptive": "...", "proscriptive": "..."}
"""


class SoftRecord(Payload):
    """One call: a sentence of what the target must show and one of what it must not."""

    kind: ClassVar[str] = "soft"
    prompt: ClassVar[str] = _PROMPT
    reads_caption: ClassVar[bool] = True
    prescriptive: str
    proscriptive: str

    @classmethod
    def derived(cls, words: Words) -> dict[str, Any]:
        spec = words.spec
        return {
            "prescriptive": ", ".join((*spec.add, *spec.preserve)) or spec.target,
            "proscriptive": ", ".join(spec.remove) or words.caption or words.edit,
        }


class SoftOnCirevl(Method):
    name, label, records = "soft", "CIReVL + SoFT", (CirevlRecord, SoftRecord)
    help = "CIReVL's score, raised by what the target must show and lowered by what it must not."
    order = 42
    strength = 1.0  # lambda on CIReVL

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        base = Cirevl().score(queries, records, features)
        read = [records.get(SoftRecord, query.id) for query in queries]
        wanted = features.similarities(features.texts(record.prescriptive for record in read))
        unwanted = features.similarities(features.texts(record.proscriptive for record in read))
        return filtered(base, wanted, unwanted, self.strength)


ROWS = (SoftOnCirevl,)


def filtered(base: Float32, wanted: Float32, unwanted: Float32, strength: float) -> Float32:
    """(1 - l) b + l b (r + 1 - p) / 2"""
    return np.asarray((1 - strength) * base + strength * base * (wanted + 1 - unwanted) / 2, np.float32)
