"""The prompts of the compared systems' records, as kinds that factorize/asking.py asks for.

A comparison must not be decided by the care of a prompt. So every system's prompt has the same rules and the same seven
worked examples as TAPR's own. The answer that an example shows follows from the record's own rule (`Payload.example`),
so that no system is shown more than another. The steps are each system's own, from its public description; the wording
is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.factorize.answers import read_object
from tapr.factorize.asking import Read, RecordKind, Step
from tapr.factorize.dialect import AnswerForm, Draw
from tapr.factorize.failures import BadAnswer
from tapr.factorize.records import SPEC
from tapr.factorize.spec_prompt import prompt_messages
from tapr.methods.record_kinds import schemas
from tapr.methods.records import FILE, Payload, RecordSource
from tapr.query.spec import EditSpec

VERSION = 2  # of steps, rules and examples together; a record names it, as in cirevl_v2
_HEAD = re.compile(
    r"^# (call|call without picture|call for each of \w+ without picture|draw \d+ \w+ at [\d.]+)$", re.MULTILINE
)
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
_TEXT = {"type": "string"}
_LIST = {"type": "array", "items": _TEXT}
# another way to say what the example's picture shows, for systems that take several captions
_REWORDED = "a picture of {}"


def prompted_kinds() -> dict[str, type[Payload]]:
    """Return the kinds that a language model is asked for, beside the spec."""
    return {kind: schema for kind, schema in schemas().items() if schema.prompt}


def load_kind(name: str, file: Path | None = None) -> RecordKind:
    """Return a kind with its own prompt, the rules and the examples; or with a file's prompt, as it stands."""
    known = prompted_kinds()
    if name not in known:
        raise BadInput(
            f"there is no prompt for {name!r}: choose {', '.join((SPEC, *known))} or all", code="unknown_name"
        )
    schema = known[name]
    if file is None:
        return RecordKind(name, f"{name}_v{VERSION}", tuple(_steps(schema, schema.prompt, complete=True)))
    try:
        steps = tuple(_steps(schema, file.read_text(encoding="utf-8"), complete=False))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the prompt {str(file)!r}: {error}", code="bad_prompt") from None
    missing = schema.model_fields.keys() - {field for step in steps for field in _filled(schema, step)}
    if not steps or missing:
        what = f"names no {', '.join(sorted(missing))}" if steps else 'has no line such as "# call"'
        how = "docs/factorizers.md says how one is written"
        raise BadInput(f"the prompt {file} of {name} records {what}: {how}", code="bad_prompt")
    return RecordKind(name, f"{FILE}{file.name}", steps)


def _filled(schema: type[Payload], step: Step) -> Collection[str]:
    """Return the fields of the record that a step fills."""
    return (step.list_name,) if step.list_name else _named(schema, step.text)


def _named(schema: type[Payload], text: str) -> list[str]:
    return [name for name in schema.model_fields if f'"{name}"' in text]


def _steps(schema: type[Payload], prompt: str, *, complete: bool) -> Iterator[Step]:
    """Read the steps of a prompt. `complete`: add the rules and the examples."""
    parts = _HEAD.split(prompt)[1:]
    known: set[str] = set()
    for head, text in zip(parts[::2], parts[1::2], strict=True):
        step = _step(schema, head, text.strip())
        if step.each and (step.each not in known or not step.list_name):
            how = "it goes through a list of an earlier step, and names one field"
            raise BadInput(f"the step {head!r} of {schema.kind} records cannot be asked: {how}", code="bad_prompt")
        known |= set(_filled(schema, step))
        yield replace(step, text=_with_rules_and_examples(schema, step)) if complete else step


def _step(schema: type[Payload], head: str, text: str) -> Step:
    words, fields, name = head.split(), _named(schema, text), schema.kind.replace("-", "_")
    if words[0] == "draw":  # "draw 15 captions at 0.7": each answer has one text, under "caption"
        key, draw = words[2].removesuffix("s"), Draw(float(words[4]), int(words[1]))
        return Step(text, AnswerForm(name, _texts(key)), _text_reader(key, words[2]), list_name=words[2], draw=draw)
    if len(words) > 3 and words[1] == "for":  # "call for each of captions without picture"
        field = fields[0] if len(fields) == 1 else ""
        read = _text_reader(field, field)
        return Step(text, AnswerForm(name, _texts(field)), read, sees_picture=False, list_name=field, each=words[4])
    kinds = {field: _LIST if _is_list(schema, field) else _TEXT for field in fields}
    return Step(text, AnswerForm(name, _object(kinds)), _field_reader(schema, fields), sees_picture=head == "call")


def _is_list(schema: type[Payload], field: str) -> bool:
    return str(schema.model_fields[field].annotation).startswith("list")


def _texts(*fields: str) -> dict[str, Any]:
    return _object(dict.fromkeys(fields, _TEXT))


def _object(kinds: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(kinds), "required": list(kinds), "additionalProperties": False}


def _text_reader(key: str, list_name: str) -> Read:
    def read(text: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        value = read_object(text, (key,))[key]
        if not isinstance(value, str) or not value.strip():
            raise BadAnswer(f"it has no text under {key!r}")
        return {list_name: value.strip()}

    return read


def _field_reader(schema: type[Payload], fields: Collection[str]) -> Read:
    def read(text: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        value = {name: value for name, value in read_object(text, fields).items() if name in fields}
        schema.check({**answers, **value}, fields)
        return value

    return read


@cache
def examples() -> tuple[RecordSource, ...]:
    """Return the worked examples of TAPR's own prompt, as what is known of a query."""
    lines = prompt_messages()["system"].splitlines()
    sources = []
    for place, line in enumerate(lines):
        if line.startswith("[") and "] Edit: " in line:
            caption, _, edit = line[1:].partition("] Edit: ")
            spec = EditSpec.from_dict(json.loads(lines[place + 1]))
            captions = (caption, _REWORDED.format(caption))
            sources.append(RecordSource(spec, edit, caption, captions, (spec.target, _REWORDED.format(spec.target))))
    return tuple(sources)


def _with_rules_and_examples(schema: type[Payload], step: Step) -> str:
    asks = "{edit}" in step.text
    shown = []
    for words in examples():
        answer = _example(schema.example(words), step, _filled(schema, step))
        before = f"[{words.caption}]" if step.sees_picture else f"Described as: {words.caption}."
        asked = f" Request: {words.edit}" if asks else ""
        shown.append(f"{before}{asked}\n{json.dumps(answer, ensure_ascii=False)}")
    head = "Worked examples (the text in brackets stands for the picture)" if step.sees_picture else "Worked examples"
    now = '\n\nNow the request is: "{edit}"' if asks else ""
    return f"{step.text}\n\n{_RULES}\n\n{head}\n\n" + "\n\n".join(shown) + now


def _example(payload: Mapping[str, Any], step: Step, fields: Collection[str]) -> dict[str, Any]:
    if step.list_name:
        (key,) = step.form.schema["required"]
        return {key: payload[step.list_name][0]}
    return {name: value for name, value in payload.items() if name in fields}
