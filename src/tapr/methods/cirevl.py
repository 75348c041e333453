"""CIReVL: caption the reference, rewrite the caption under the edit, search with the rewritten text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.types import Float32

_PROMPT = """\
# call
Describe what this picture shows in one plain sentence: the main things, how many there are, their colours, \
what they do
and where they are. Answer with JSON only: {"caption": "..."}

# call without picture
A picture is described as: {answers}
Somebody wants another picture, and says how it differs: "{edit}"
Rewrite the description so that it describes the wanted picture alone. Keep what the change does not touch. One \
sentence,
no comparison with the first picture. Answer with JSON only: {"description": "..."}
"""


class CirevlRecord(Payload):
    """Two calls: `caption` says what the reference shows, `description` the same after the edit."""

    kind: ClassVar[str] = "cirevl"
    prompt: ClassVar[str] = _PROMPT
    needs_caption: ClassVar[bool] = True
    reads_caption: ClassVar[bool] = True
    caption: str
    description: str

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        return {"caption": words.caption, "description": words.spec.target}


class Cirevl(Method):
    name, label, records = "cirevl", "CIReVL", (CirevlRecord,)
    help = "Caption the reference, rewrite the caption under the edit, search with the rewritten text."
    order = 30

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        descriptions = [records.get(CirevlRecord, query.id).description for query in queries]
        return features.similarities(features.texts(descriptions))


ROWS = (Cirevl,)
