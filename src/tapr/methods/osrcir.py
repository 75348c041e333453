"""OSrCIR: one chain-of-thought prompt about picture and edit gives the target's description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.types import Float32

_PROMPT = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Work in four steps. First say what the picture shows. Then say what the request means for this picture: what is to be
added, changed, taken away, and what is left unsaid. Then check your reading for mistakes and for details that \
the request
does not touch. Last, describe the wanted picture in one short sentence that stands on its own.
Answer with JSON only: {"description": "...", "thoughts": "...", "reflections": "...", "target": "..."}
"""


class OsrcirRecord(Payload):
    """One call: observation, thoughts, reflection and target description. Only the last is scored."""

    kind: ClassVar[str] = "osrcir"
    prompt: ClassVar[str] = _PROMPT
    reads_caption: ClassVar[bool] = True
    description: str
    thoughts: str
    reflections: str
    target: str

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        target, edit = words.spec.target, words.edit
        return {"description": words.caption or target, "thoughts": edit, "reflections": edit, "target": target}

    @classmethod
    def example(cls, words: RecordSource) -> dict[str, Any]:
        spec = words.spec
        named = {"comes in": spec.add, "goes": spec.remove, "is left alone": spec.preserve}
        said = "; ".join(f"{what}: {', '.join(atoms)}" for what, atoms in named.items() if atoms)
        checked = "every word is in the request or in the picture, and nothing that goes is mentioned"
        return cls.derived(words) | {"thoughts": said, "reflections": checked}


class Osrcir(Method):
    name, label, records = "osrcir", "OSrCIR", (OsrcirRecord,)
    help = "One reflective look at picture and edit gives the target's description."
    order = 31

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.texts(records.get(OsrcirRecord, query.id).target for query in queries))


ROWS = (Osrcir,)
