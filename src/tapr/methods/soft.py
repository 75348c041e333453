"""SoFT on CIReVL: the base score, raised by what the target must show and lowered by what it must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import field_validator

from tapr.methods.base import Method, QueryLike
from tapr.methods.cirevl import Cirevl, CirevlRecord
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.types import Float32

_PROMPT = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Write short sentences about the wanted picture. The first list says everything that it must show. The second names what
it must not show, as if it were there, without any "no" or "not"; it is empty where nothing has to go. Answer with JSON
only:
{"prescriptive": ["..."], "proscriptive": ["..."]}
"""


class SoftRecord(Payload):
    """One call: sentences of what the target must show and of what it must not; there may be none."""

    kind: ClassVar[str] = "soft"
    prompt: ClassVar[str] = _PROMPT
    reads_caption: ClassVar[bool] = True
    prescriptive: list[str]
    proscriptive: list[str]

    @field_validator("prescriptive", "proscriptive", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        """A single sentence becomes a list of one; an empty one becomes an empty list."""
        return [value] if isinstance(value, str) and value.strip() else value or []

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        spec = words.spec
        return {
            "prescriptive": ", ".join((*spec.add, *spec.preserve)) or spec.target,
            "proscriptive": ", ".join(spec.remove) or words.caption or words.edit,
        }


class SoftOnCirevl(Method):
    name, label, records = "soft", "CIReVL + SoFT", (CirevlRecord, SoftRecord)
    help = "CIReVL's score, raised by what the target must show and lowered by what it must not."
    order = 42
    constants: ClassVar = {"strength": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)}
    strength = 1.0  # lambda on CIReVL

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        base = Cirevl().score(queries, records, features)
        read = [records.get(SoftRecord, query.id) for query in queries]
        wanted = _similarities([record.prescriptive for record in read], features)
        unwanted = _similarities([record.proscriptive for record in read], features)
        return filtered(base, wanted, unwanted, self.strength)


ROWS = (SoftOnCirevl,)


def _similarities(said: Sequence[Sequence[str]], features: Features) -> Float32:
    """(Q, N): the sentences of a query are joined to one text. Without any, every score is 0, which changes no
    order.
    """
    texts = [" ".join(sentences) for sentences in said]
    vectors = features.texts(text or "nothing" for text in texts)
    vectors[[place for place, text in enumerate(texts) if not text]] = 0
    return features.similarities(vectors)


def filtered(base: Float32, wanted: Float32, unwanted: Float32, strength: float) -> Float32:
    """(1 - l) b + l b (r + 1 - p) / 2"""
    return np.asarray((1 - strength) * base + strength * base * (wanted + 1 - unwanted) / 2, np.float32)
