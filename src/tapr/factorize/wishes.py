"""Cleans an edit before it is read: politeness, liking, typing errors, other languages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tapr.factorize.grammar import read_edit
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import Reading
from tapr.factorize.grammar.words import is_plural, load
from tapr.factorize.languages import translated
from tapr.factorize.spelling import mended


@dataclass(frozen=True)
class Wish:
    text: str  # the edit as it was read: English, in lower case, without politeness
    reading: Reading
    notes: tuple[str, ...] = ()
    is_foreign: bool = False  # in a language that no table has: nothing was read


def read_wish(edit: str, caption: str = "") -> Wish:
    """Return the edit without what is said around it. The caption's own words are known words."""
    notes: list[str] = []
    english = edit
    translation = translated(edit)
    if translation is not None:
        if not translation.language:
            notes.append("the edit is not in English: it is searched as it stands; say it in English to have it read")
            return Wish(edit, Reading(), tuple(notes), is_foreign=True)
        english = translation.text
        lost = f"; unknown words, used as typed: {', '.join(translation.missing)}" if translation.missing else ""
        notes.append(f'the edit is {translation.language}, read word by word as "{english}"{lost}')
    text = _rewritten(english.casefold(), "polite")
    text, slips = mended(text, re.findall(r"[a-z]+", caption.casefold()))
    notes += [f'"{word}" is read as "{meant}"' for word, meant in slips]
    text = _rewritten(_rewritten(text, "polite"), "turned")
    if not re.search(r"[^\W_]", text) or re.match(_data()["vague"], text):
        return Wish(text, Reading(), tuple(notes))
    reading = read_edit(text)
    if translation is not None:
        reading = replace(reading, unknown=())
    return Wish(text, _measured(reading), tuple(notes))


@cache
def _data() -> dict[str, Any]:
    return dict(load("wishes.json"))


@cache
def _rules(name: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in _data()[name])


def _rewritten(text: str, name: str) -> str:
    for pattern, replacement in _rules(name):
        text = " ".join(pattern.sub(replacement, text).split())
    return text.strip(" ,")


def _measured(reading: Reading) -> Reading:
    """Read "more cheese" as cheese, "more heel" as high heels: what has no plural cannot be many."""
    add: list[Atom] = []
    remove = list(reading.remove)
    for atom in reading.add:
        amount, _, thing = atom.text.partition(" ")
        if amount not in ("many", "few") or not thing or (is_plural(thing) and thing not in _data()["much"]):
            add.append(atom)
        elif thing in _data()["much"]:
            add.append(replace(atom, text=_data()["much" if amount == "many" else "little"][thing]))
        elif amount == "many":
            add.append(replace(atom, text=thing))
        else:
            remove.append(thing)
    return replace(reading, add=tuple(add), remove=tuple(dict.fromkeys(remove)))
