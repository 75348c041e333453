"""CoTMR: the target's caption, raised by objects that must be there and lowered by those that must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.types import Float32

_PROMPT = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Think step by step: what does the picture show, which objects does the request bring in, change or take away, \
and which
stay? Then give a caption of the wanted picture, the list of objects that are in it, and the list of objects \
that were in
the first picture and are not in the wanted one. Short names; a list may be empty. Answer with JSON only:
{"target": "...", "existent": ["...", ...], "nonexistent": ["...", ...]}
"""


class CotmrRecord(Payload):
    """One call: the target's caption, objects that exist in it and objects that do not; lists may be empty."""

    kind: ClassVar[str] = "cotmr"
    prompt: ClassVar[str] = _PROMPT
    target: str
    existent: list[str] = Field(default_factory=list)
    nonexistent: list[str] = Field(default_factory=list)

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        spec = words.spec
        return {"target": spec.target, "existent": [*spec.add, *spec.preserve], "nonexistent": list(spec.remove)}


class Cotmr(Method):
    name, label, records = "cotmr", "CoTMR", (CotmrRecord,)
    help = "The target's caption, raised by objects that must be there and lowered by those that must not."
    order = 43
    ours = "the two lists' weights (0.25 each)"
    constants: ClassVar = {"plus": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0), "minus": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)}
    plus, minus = 0.25, 0.25

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        read = [records.get(CotmrRecord, query.id) for query in queries]
        vectors = features.texts(record.target for record in read)  # (Q, d)
        for row, record in enumerate(read):  # a mean of similarities is the similarity of the mean
            if record.existent:
                vectors[row] += np.float32(self.plus) * features.texts(record.existent).mean(axis=0)
            if record.nonexistent:
                vectors[row] -= np.float32(self.minus) * features.texts(record.nonexistent).mean(axis=0)
        return features.similarities(vectors)


ROWS = (Cotmr,)
