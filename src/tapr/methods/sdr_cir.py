"""SDR-CIR: a selective description, a little of the reference's own vector, and the edit text against drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike, Setting
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.types import Float32

CONSTANTS = {"CIRR": (0.05, 0.5), "CIRCO": (0.15, 0.35), "FashionIQ": (0.2, 0.4)}  # alpha, beta


_PROMPT = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Look only at what the request touches and at what the wanted picture must share with this one; pass over the rest.
Describe the wanted picture in one short sentence that stands on its own. Answer with JSON only: \
{"description": "..."}
"""


class SdrRecord(Payload):
    """One call: the target's description."""

    kind: ClassVar[str] = "sdr-cir"
    prompt: ClassVar[str] = _PROMPT
    description: str

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        return {"description": words.spec.target}


class SdrCir(Method):
    name, label, records = "sdr-cir", "SDR-CIR", (SdrRecord,)
    help = "A selective description, a little of the reference's own vector, and the edit text against drift."
    order = 44
    constants: ClassVar = {
        "alpha": (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
        "beta": (0.0, 0.2, 0.35, 0.4, 0.5, 0.75, 1.0),
    }

    def __init__(self, dataset: str = "CIRCO") -> None:
        self.alpha, self.beta = CONSTANTS.get(dataset, CONSTANTS["CIRCO"])
        if dataset not in CONSTANTS:
            self.ours = "CIRCO's constants are used on this dataset"

    @classmethod
    def make(cls, setting: Setting) -> Self:
        return cls(setting.dataset)

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        described = features.texts(records.get(SdrRecord, query.id).description for query in queries)  # (Q, d)
        reference = features.query_vectors(queries)
        mixed = features.similarities(unit((1 - self.alpha) * described + self.alpha * reference))
        edit = features.similarities(features.texts(query.edit for query in queries))
        by_description = features.similarities(described)
        return np.asarray((1 + self.beta) * mixed - self.beta * (by_description - edit), np.float32)


ROWS = (SdrCir,)
