"""Kinds of words: which word may replace which when a caption is edited."""

from __future__ import annotations

import re
from functools import cache

from tapr.factorize.grammar.words import lexicon, load, singular

_GROUPS = ("people", "roles", "places", "animals", "food", "vehicles", "clothes", "bags", "jewellery", "flowers")
_KINDS = (
    "size",
    "length",
    "height",
    "age",
    "shape",
    "manner",
    "material",
    "pattern",
    "wetness",
    "hair",
    "width",
    "weight",
)
_MANY_COLOURS = frozenset(("multi", "colourful", "colorful", "multicoloured", "multicolored"))
_NO_ROLE = frozenset(("face", "hand", "eye", "ghost", "robot", "alien"))
TONE = re.compile(
    r"(yellow|light|medium-light|medium|medium-dark|dark|fair|tan|brown|black|white|pale)[ -]skin(?: tone)?"
)
_TONE_NAMES = {
    "fair": "light",
    "white": "light",
    "pale": "light",
    "tan": "medium",
    "brown": "medium-dark",
    "black": "dark",
}


@cache
def words_of(name: str) -> frozenset[str]:
    """Return one of the lists of data/caption_words.json."""
    return frozenset(load("caption_words.json")[name].split())


@cache
def _synonyms() -> dict[str, str]:
    return {word: first for first, *rest in load("synonyms.json") for word in rest}


@cache
def canonical(noun: str) -> str:
    """Return one spelling of one thing: "T-shirts" -> "tshirt", "bike" -> "bicycle"."""
    word = singular(noun.casefold()).replace("-", "")
    return _synonyms().get(word, word)


@cache
def _groups() -> dict[str, str]:
    groups: dict[str, str] = {}
    for group, entries in load("vocabulary.json")["things"].items():
        for entry in entries:
            for name in re.split(": |, ", entry):
                word = canonical(name.split()[-1] if " of " not in name else name.split()[0])
                own_group = "roles" if group == "people" and word not in _NO_ROLE else group
                groups.setdefault(word, "faces" if word == "face" else own_group)
    for group in reversed(_GROUPS):
        groups |= dict.fromkeys(map(canonical, words_of(group)), group)
    return groups


@cache
def _families() -> dict[str, str]:
    families: dict[str, str] = {}
    for entries in load("vocabulary.json")["things"].values():
        for entry in entries:
            general, *members = re.split(": |, ", entry)
            families |= {canonical(name): general for name in (general, *members)}
    return families


def group_of(noun: str) -> str:
    """Return a noun's group: "dog" -> "animals"; "" for a word of no group."""
    return _groups().get(canonical(noun), "")


def same_family(noun: str, other: str) -> bool:
    """Return whether two names may mean the same thing: dog and puppy, shirt and blouse."""
    known = _families()
    first, second = canonical(noun), canonical(other)
    return first == second or (first in known and known[first] == known.get(second))


def is_general(noun: str) -> bool:
    """Return whether it is the name of a whole family: bird, shirt."""
    return canonical(noun) == canonical(
        _families().get(canonical(noun), " ").split()[-1] if _families().get(canonical(noun)) else ""
    )


def kind_of(quality: str) -> str:
    """Return the kind of an attribute, "" when nothing would contradict it: "blue" -> "colour"."""
    if quality in words_of("wearers"):
        return "wearer"
    lexis = lexicon()
    if quality in lexis.classes["numbers"]:
        return "number"
    for kind in _KINDS:
        if quality in words_of(kind):
            return kind
    if quality in _MANY_COLOURS or quality.endswith(("ish", "-coloured")):
        return "colour"
    return lexis.kind(quality) or ""


def is_modifier(word: str) -> bool:
    """Return whether the word can stand before a noun and say how it is."""
    kind = kind_of(word)
    if kind and (word.endswith("'s") if kind == "wearer" else group_of(word) != "places"):
        return True
    return lexicon().is_quality(word) or word in lexicon().classes["shades"]


def tone_of(phrase: str) -> str:
    """Return the skin tone a phrase speaks of: "darker skin" -> "dark"; "" when of none."""
    match = TONE.search(phrase)
    return _TONE_NAMES.get(match[1], match[1]) if match else ""
