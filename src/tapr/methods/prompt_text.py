"""What every system's prompt has beside its own steps: the same rules and the same worked examples as TAPR's prompt.

A comparison must not be decided by the care of a prompt. The seven examples are those of factorize/prompts/. What a
system would answer follows from its own record's rule (`Payload.example`), so that no system is shown more than
another. The steps are each system's own, from its public description; the wording is ours.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from tapr.factorize.prompt import load_prompt
from tapr.methods.records import RecordSource
from tapr.query.spec import EditSpec

if TYPE_CHECKING:
    from tapr.methods.records import Payload

VERSION = 2  # of steps, rules and examples together; a record names it, as in cirevl_v2
_RULES = """\
Rules
1. Absolute words only. Never compare: not "more people" but "a crowd of people", not "darker" but "dark blue".
2. No negation: what must go is not mentioned in a description of the wanted picture.
3. A replacement names the new thing alone. A change of colour, material, number, pose, place, weather, time or style is
   a replacement too.
4. Invent nothing: every word comes from the request or is plainly visible in the picture.
5. A description is one sentence of at most 40 words, as a caption would be.
6. Never speak of the first picture, of the request or of "instead of".
7. English, whatever the language of the request. The JSON object alone, nothing before or after it."""
# another way to say what the example's picture shows, for systems that take several captions
_REWORDED = "a picture of {}"


@cache
def examples() -> tuple[RecordSource, ...]:
    """The worked examples of TAPR's own prompt, as what is known of a query."""
    lines = load_prompt().system.splitlines()
    made = []
    for place, line in enumerate(lines):
        if line.startswith("[") and "] Edit: " in line:
            caption, _, edit = line[1:].partition("] Edit: ")
            spec = EditSpec.from_dict(json.loads(lines[place + 1]))
            captions = (caption, _REWORDED.format(caption))
            made.append(RecordSource(spec, edit, caption, captions, (spec.target, _REWORDED.format(spec.target))))
    return tuple(made)


def with_rules_and_examples(
    steps: str, schema: type[Payload], fields: Collection[str], *, sees_picture: bool, drawn: str, each: str
) -> str:
    """The text of one call. `fields` of the record that it answers; `drawn`, `each`: the list that it makes, or goes
    through, one text at a time."""
    shown = []
    for words in examples():
        made = schema.example(words)
        answer = _answer(made, fields, drawn, each)
        asked = f" Request: {words.edit}" if "{edit}" in steps else ""
        before = f"[{words.caption}]" if sees_picture else f"Described as: {words.caption}."
        shown.append(f"{before}{asked}\n{json.dumps(answer, ensure_ascii=False)}")
    head = "Worked examples (the text in brackets stands for the picture)" if sees_picture else "Worked examples"
    now = '\n\nNow the request is: "{edit}"' if "{edit}" in steps else ""
    return f"{steps}\n\n{_RULES}\n\n{head}\n\n" + "\n\n".join(shown) + now


def _answer(made: Mapping[str, Any], fields: Collection[str], drawn: str, each: str) -> dict[str, Any]:
    if drawn:
        return {drawn.removesuffix("s"): made[drawn][0]}
    return {name: made[name][0] if each else made[name] for name in made if name in fields}


def schema_of(schema: type[Payload], fields: Collection[str], *, texts: bool) -> dict[str, Any]:
    """JSON schema of a call's answer. `texts`: every field is one text, of a list that is made one by one."""
    kinds = {}
    for name in schema.model_fields:
        if name in fields:
            many = str(schema.model_fields[name].annotation).startswith("list") and not texts
            kinds[name] = {"type": "array", "items": {"type": "string"}} if many else {"type": "string"}
    return object_of(kinds)


def object_of(kinds: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(kinds), "required": list(kinds), "additionalProperties": False}
