"""What an atom claims, word by word, and what each claim is held against: "red chair" -> a colour and a thing.

A claim is a contest. "red shirt" must fit better than "blue shirt", "green shirt" and so on, and a shirt better than
any other thing of the vocabulary (factorize/data/vocabulary.json) that is not also a shirt. Words that have no rivals
here leave the atom partly unchecked. Numbers have none: "two dogs" against "three dogs" is little better than chance
(docs/quality.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tapr.factorize.caption.words import tone_of
from tapr.factorize.grammar.words import lexicon, load, singular
from tapr.factorize.tags import vocabulary

Kind = Literal["object", "person", "colour", "material"]

_MATERIAL_NAMES = {"wood": "wooden", "wool": "woollen", "metallic": "metal"}
_SPELLINGS = {"gray": "grey", "airplane": "aeroplane", "plane": "aeroplane", "bike": "bicycle", "tv": "television"}
# Whom a word may also be called: a man is no woman, but an astronaut may be either.
_AGES = {
    "man": {"man", "old man"},
    "woman": {"woman", "old woman"},
    "old man": {"man", "old man"},
    "old woman": {"woman", "old woman"},
    "boy": {"boy", "child", "baby"},
    "girl": {"girl", "child", "baby"},
    "child": {"child", "boy", "girl", "baby"},
    "baby": {"baby", "child", "boy", "girl"},
}
_ANYBODY = {"person", "people", "couple", "family", "crowd", "players"}
_LONGEST = 3  # words of a thing's name


@dataclass(frozen=True)
class Contest:
    """One claim. `rivals` cannot be true of the same thing at the same time, or seldom are."""

    kind: Kind
    phrase: str
    rivals: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """All that an atom says. Not `whole`: it has words that no contest checks."""

    contests: tuple[Contest, ...]
    whole: bool = True


@cache
def colours() -> tuple[str, ...]:
    return vocabulary().tag_groups["colour"].phrases


@cache
def materials() -> tuple[str, ...]:
    return tuple(load("vocabulary.json")["known"]["material"])


@cache
def _people() -> frozenset[str]:
    names = (re.split(": |, ", entry) for entry in load("vocabulary.json")["things"]["people"])
    return frozenset(name for family in names for name in family)


@cache
def _names() -> dict[tuple[str, ...], str]:
    """Things by their words in the singular."""
    return {tuple(map(singular, name.split())): name for name in vocabulary().things}


@cache
def claim_of(atom: str) -> Claim:
    words = [_spelled(word) for word in re.findall(r"[a-z0-9][a-z0-9'-]*", atom.casefold())]
    idle = lexicon().classes["function"] | lexicon().classes["determiners"] | lexicon().classes["places"]
    found: list[Contest] = []
    unchecked: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        name, size = _thing_at(words, place)
        if word in colours() and not (name == word and _is_fruit(words, place)):
            found.append(_swap("colour", words, place, colours()))
        elif word in materials() and place + 1 < len(words):  # "glass" at the end is a thing
            found.append(_swap("material", words, place, materials()))
        elif name:
            place += size - 1
            if _thing_at(words, place + 1)[0]:  # "wine glass" is neither wine nor any glass
                unchecked += words[place : place + 1]
            else:
                found.append(_thing(name))
        elif word not in idle:
            unchecked.append(word)
        place += 1
    has_thing = any(contest.kind in ("object", "person") for contest in found)
    if unchecked and not has_thing and not any(map(_says_how, unchecked)) and not tone_of(atom):
        # a thing that the vocabulary does not name: all of its things are rivals, but for those it is called after
        phrase = " ".join(unchecked)
        rivals = tuple(name for name in vocabulary().things if not set(name.split()) & set(unchecked))
        found.append(Contest("object", phrase, rivals))
        unchecked = []
    return Claim(tuple(dict.fromkeys(found)), whole=not unchecked)


def _spelled(word: str) -> str:
    word = word.removesuffix("'s")
    return _SPELLINGS.get(word) or _MATERIAL_NAMES.get(word) or word


def _thing_at(words: list[str], place: int) -> tuple[str, int]:
    """The longest name of a thing that begins here, and its length; ("", 0): none."""
    for size in range(min(_LONGEST, len(words) - place), 0, -1):
        name = _names().get(tuple(map(singular, words[place : place + size])))
        if name and (size > 1 or words[place] not in lexicon().classes["sizes"]):  # "short" is no pair of shorts
            return name, size
    return "", 0


def _says_how(word: str) -> bool:
    return lexicon().is_quality(word) or word in lexicon().classes["numbers"] or word in materials()


def _is_fruit(words: list[str], place: int) -> bool:
    """An orange, and not an orange shirt."""
    return place + 1 == len(words) and place > 0


def _swap(kind: Kind, words: list[str], place: int, values: tuple[str, ...]) -> Contest:
    """Let the words compete with the same words that have another value in this place."""
    forms = {value: " ".join([*words[:place], value, *words[place + 1 :]]) for value in values}
    own = forms.pop(words[place])
    return Contest(kind, own, tuple(forms.values()))


@cache
def _thing(name: str) -> Contest:
    if name not in _people():
        same = set(vocabulary().family(name))
        kind: Kind = "object"
    else:
        kind = "person"
        if name in _AGES:  # roles are no rivals: a cook is a man or a woman
            same = _AGES[name] | (_people() - _AGES.keys())
        elif name in vocabulary().family("person")[1:]:
            same = {name} | _AGES.keys() | _ANYBODY
        else:
            same = set(_people()) if name in _ANYBODY else set(vocabulary().family(name))
    return Contest(kind, name, tuple(other for other in vocabulary().things if other not in same))
