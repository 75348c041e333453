"""The answers of language models: JSON objects in text, and the EditSpec in one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from tapr.factorize.dialect import AnswerForm
from tapr.factorize.failures import BadAnswer
from tapr.query.edit_kinds import EDIT_KINDS
from tapr.query.spec import ATOM_FACTORS, FACTORS, EditSpec

MAX_ATOMS_ASKED = 8  # a factor; the prompt asks for 6
MAX_READINGS_ASKED = 3
MAX_TARGET_PIECES = 55  # words and signs; CLIP reads 75 tokens, and a rare word takes two or three
CONTINUITY = "continuity"
_KEYS = (*FACTORS, CONTINUITY, "readings", "kind")
_CONTINUITY = {"type": ["integer", "null"], "enum": [0, None]}  # how much stays in between, the score's rule decides
_ATOMS = {"type": "array", "items": {"type": "string"}, "maxItems": MAX_ATOMS_ASKED}
_SENTENCES = {"type": "array", "items": {"type": "string"}, "maxItems": MAX_READINGS_ASKED}
_KIND = {"type": ["string", "null"], "enum": [*EDIT_KINDS, None]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "target": {"type": "string"},
        **dict.fromkeys(ATOM_FACTORS, _ATOMS),
        CONTINUITY: _CONTINUITY,
        "readings": _SENTENCES,
        "kind": _KIND,
    },
    "required": list(_KEYS),  # servers that hold an answer to a schema want every name in it
    "additionalProperties": False,
}

SPEC_FORM = AnswerForm("edit_spec", SCHEMA)
MAX_OBJECT_CHARACTERS = 1 << 16  # a longer one is no answer
MAX_OBJECTS_TRIED = 1000  # braces at which an object may begin, the last ones: the time is linear in the text

_START = re.compile(r'\{(?=\s*["}])')
_NEGATED = re.compile(r"(no|not|without|never|non)\b(?!-)", re.IGNORECASE)
_RELATIVE = re.compile(r"(more|less|fewer|same)\b|.*\bthan\b", re.IGNORECASE)
_TARGET_TALK = re.compile(r"\binstead of\b|\bthe (reference|original)\b", re.IGNORECASE)


def read_answer(text: str, unread: Callable[[str], str] | None = None) -> EditSpec:
    """Return the spec in a model's answer, or raise BadInput with a reason that helps the model to mend it.

    `unread` returns the end of a text that the text tower does not read; without it, words and signs are counted.
    """
    answer = read_object(text, ("target",))
    unknown = sorted(set(answer) - set(_KEYS))
    if unknown:
        raise BadAnswer(f"unknown key {unknown[0]!r}: the keys are {', '.join(_KEYS)}")
    if answer.get(CONTINUITY) not in (0, None):
        raise BadAnswer(
            f"{CONTINUITY} is {answer[CONTINUITY]!r}: it is 0 where nothing of the picture stays, else null"
        )
    spec = EditSpec.from_dict(answer)
    for sentence in spec.sentences:
        _check_target(sentence, unread)
    for factor in ATOM_FACTORS:
        for atom in spec.atoms(factor):
            _check_atom(atom, factor)
    return spec


def read_object(text: str, names: Collection[str]) -> dict[str, Any]:
    """Return the last JSON object that has one of the names: models draft first, explain around it or fence it."""
    decoder = json.JSONDecoder()
    last: dict[str, Any] | None = None
    end = 0
    for start in [match.start() for match in _START.finditer(text)][-MAX_OBJECTS_TRIED:]:
        if start < end:
            continue  # inside the one before
        try:
            value, length = decoder.raw_decode(text[start : start + MAX_OBJECT_CHARACTERS])
        except (ValueError, RecursionError):
            continue
        end = start + length
        if not value.keys().isdisjoint(names):
            last = value
    if last is not None:
        return last
    if not text.strip():
        raise BadAnswer("the answer is empty")
    if "{" in text:
        named = " or ".join(f'"{name}"' for name in names)
        raise BadAnswer(f"the answer holds no complete JSON object with a {named}")
    raise BadAnswer("the answer holds no JSON object")


def _check_target(target: str, unread: Callable[[str], str] | None) -> None:
    talk = _TARGET_TALK.search(target)
    if talk:
        raise BadAnswer(f"the target says {talk.group()!r}: describe the wanted picture alone")
    if unread is not None:
        lost = unread(target)
        if lost:
            raise BadAnswer(f"the target is too long, its end is not read ({lost[:60]!r}): shorten it to 40 words")
        return
    pieces = len(re.findall(r"\w+|[^\w\s]", target))
    if pieces > MAX_TARGET_PIECES:
        raise BadAnswer(f"the target has {pieces} words and signs, at most {MAX_TARGET_PIECES} are read: shorten it")


def _check_atom(atom: str, factor: str) -> None:
    if _NEGATED.match(atom):
        raise BadAnswer(f"the atom {atom!r} of {factor} is negated: name the thing alone, in remove if it must go")
    if _RELATIVE.match(atom):
        raise BadAnswer(f"the atom {atom!r} of {factor} compares: say in absolute words what is seen")
