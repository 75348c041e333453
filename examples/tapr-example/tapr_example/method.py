"""The method `shorter`: five words of the target, less a tenth of the edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tapr.methods import Features, Method, QueryLike, RecordSet
from tapr.methods.records import Payload, RecordSource
from tapr.types import Float32


class ShorterRecord(Payload):
    """One call: the wanted picture in five words at most."""

    kind: ClassVar[str] = "shorter"
    prompt: ClassVar[str] = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Describe the wanted picture in five words at most. Answer with JSON only: {"five": "..."}
"""
    five: str

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        """Without a language model: the first five words of the target sentence."""
        return {"five": " ".join(words.spec.target.split()[:5])}


class Shorter(Method):
    name, label, records = "shorter", "Shorter (example)", (ShorterRecord,)
    help = "Five words of the target, less a tenth of the edit: an example, not a good method."
    ours = "all of it"

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        five = features.texts(records.get(ShorterRecord, query.id).five for query in queries)  # (Q, d)
        edit = features.texts(query.edit for query in queries)
        return features.similarities(five - np.float32(0.1) * edit)
