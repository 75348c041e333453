"""The words the edit reader knows: our own lists in data/, and a little English morphology."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

NOUN_KINDS = frozenset(("scene", "style", "tint", "time", "season", "weather", "tone", "viewpoint"))  # named by nouns
_ADJECTIVE_ENDING = re.compile(r"\w{2}(?:ful|ous|ish|ive|less|-like|-coloured|able|ible|-\w+ed)$")
_HEAD_END = re.compile(r" (?:of|in|on|at|with|by|to|from|for|\w+ing)\b")
_VOWELS = "aeiou"
_DOUBLED = frozenset(
    ("sit", "run", "swim", "cut", "hit", "put", "dig", "hug", "pet", "chop", "mop", "drag", "grab", "spin", "wrap")
)
_SINGULAR_S = frozenset(
    ("dress", "glass", "grass", "bus", "class", "cross", "canvas", "moss", "gas", "lens", "compass")
)
_IRREGULAR_PLURALS = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose",
    "feet": "foot", "teeth": "tooth", "wolves": "wolf", "leaves": "leaf", "knives": "knife", "sheep": "sheep",
    "fish": "fish", "deer": "deer", "loaves": "loaf", "shelves": "shelf", "calves": "calf", "scarves": "scarf",
}  # fmt: skip
_IRREGULAR_FORMS = {
    "sat": "sit", "stood": "stand", "lay": "lie", "ran": "run", "flew": "fly", "ate": "eat", "slept": "sleep",
    "held": "hold", "rode": "ride", "swam": "swim", "drank": "drink", "lies": "lie",
}  # fmt: skip


def load(name: str) -> Any:
    """Return one of the shipped lists: `load("words.json")`."""
    return json.loads(files("tapr.factorize").joinpath("data", name).read_text(encoding="utf-8"))


def _spoken(words: str) -> frozenset[str]:
    return frozenset(words.split())


@dataclass(frozen=True)
class Lexicon:
    classes: Mapping[str, frozenset[str]]  # "colours", "places", ...: words.json
    verbs: Mapping[str, tuple[str, ...]]  # groups of command verbs and the visual verbs: verbs.json, longest first
    meanings: Mapping[str, Mapping[str, str]]  # comparatives, opposites, absences, ...: meanings.json
    inflections: Mapping[str, str]  # "sits" -> "sit", "sitting" -> "sit"
    kinds: Mapping[str, str]  # attribute phrase -> its kind: "blue" -> "colour"
    things: frozenset[str]  # every thing of the vocabulary, in singular

    def has(self, group: str, word: str) -> bool:
        return word in self.classes[group]

    def is_colour(self, word: str) -> bool:
        return word in self.classes["colours"]

    def is_quality(self, word: str) -> bool:
        """Return whether the word can stand alone after "is": blue, formal, striped."""
        if self.is_colour(word) or word in self.classes["adjectives"] or word in self.classes["sizes"]:
            return True
        if self.kinds.get(word, "scene") not in NOUN_KINDS:
            return True
        return word not in self.things and bool(_ADJECTIVE_ENDING.search(word))

    def is_comparative(self, word: str) -> bool:
        return self.positive(word) is not None

    def positive(self, word: str) -> str | None:
        """Return a comparative's state: darker -> dark, bigger -> large; None when the word is no comparative."""
        known = self.meanings["comparatives"].get(word)
        if known or not word.endswith("er") or len(word) < 5:
            return known
        stem = word[:-2]
        for base in (stem, stem + "e", stem[:-1] if stem[-1] == stem[-2] else stem, stem[:-1] + "y"):
            if base in self.classes["adjectives"] or base in self.classes["sizes"]:
                return base
        return None

    def kind(self, phrase: str) -> str | None:
        """Return the attribute kind of a whole phrase; a shade before a colour is still a colour."""
        if phrase in self.kinds:
            return self.kinds[phrase]
        words = [word for word in phrase.split() if word not in self.classes["shades"] and word != "and"]
        return "colour" if all(map(self.is_colour, words or phrase.split())) else None  # "navy" is a shade and a colour

    def knows(self, word: str) -> bool:
        """Return whether the word is in any list. Others are taken as they stand, and named in a note."""
        word = word.removesuffix("'s")
        if word in self.inflections or word in self.kinds or word in self.things or singular(word) in self.things:
            return True
        return (
            self.is_quality(word) or self.is_comparative(word) or any(word in group for group in self.classes.values())
        )


@cache
def lexicon() -> Lexicon:
    vocabulary = load("vocabulary.json")
    meanings = load("meanings.json")
    verbs = {
        group: tuple(sorted((verb.replace("-", " ") for verb in text.split()), key=len, reverse=True))
        for group, text in load("verbs.json").items()
    }
    inflections = dict(_IRREGULAR_FORMS)
    for verb in verbs["visual"]:
        inflections |= {verb: verb, third_person(verb): verb, gerund(verb): verb}
    kinds = {phrase: kind for kind, phrases in vocabulary["known"].items() for phrase in phrases}
    kinds |= {phrase: kind for kind, contest in vocabulary["tagged"].items() for phrase in contest["tags"]}
    entries = [entry for group in vocabulary["things"].values() for entry in group]
    scenes = vocabulary["tagged"]["scene"]
    nouns = {word for entry in (*entries, *scenes["tags"], *scenes["contrast"]) for word in re.split(r"[:,\s]+", entry)}
    classes = {group: _spoken(text) for group, text in load("words.json").items()}
    commands = [
        *(verb for group in verbs.values() for verb in group),
        *meanings["actions"],
        "reduce increase decrease zoom",
    ]
    classes["commands"] = frozenset(word for verb in commands for word in verb.split())
    return Lexicon(
        classes=classes,
        verbs=verbs,
        meanings=meanings,
        inflections=inflections,
        kinds=kinds,
        things=frozenset(map(singular, nouns | classes["nouns"])),
    )


def gerund(verb: str) -> str:
    """Return a verb's -ing form: sit -> sitting, ride -> riding, lie -> lying."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe")):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if verb in _DOUBLED else "") + "ing"


def third_person(verb: str) -> str:
    if verb.endswith(("s", "sh", "ch", "x", "z")):
        return verb + "es"
    return verb[:-1] + "ies" if len(verb) > 1 and verb.endswith("y") and verb[-2] not in _VOWELS else verb + "s"


def is_plural(noun: str) -> bool:
    if noun in _IRREGULAR_PLURALS:
        return True
    return noun.endswith("s") and not noun.endswith(("ss", "us", "'s")) and noun not in _SINGULAR_S and len(noun) > 2


def singular(noun: str) -> str:
    if noun in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[noun]
    if not is_plural(noun):
        return noun
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    return noun[:-2] if noun.endswith(("shes", "ches", "xes", "sses", "oes")) else noun[:-1]


def plural(noun: str) -> str:
    if is_plural(noun):
        return noun
    irregular = {single: many for many, single in _IRREGULAR_PLURALS.items()}
    return irregular.get(noun) or third_person(noun)  # nouns and verbs take the same -s


def plural_phrase(phrase: str) -> str:
    """Put the head of a noun phrase into the plural: "cup of tea" -> "cups of tea"."""
    head, of, rest = phrase.partition(" of ")
    words = head.split()
    return " ".join([*words[:-1], plural(words[-1])]) + of + rest


def with_article(phrase: str) -> str:
    """Turn "hat" into "a hat"; plurals, counts and stuff stay bare."""
    words, head = phrase.split(), _HEAD_END.split(phrase)[0].split() or [phrase]
    bare = lexicon().classes
    if (
        is_plural(head[-1])
        or head[-1] in bare["mass nouns"]
        or words[0] in bare["numbers"]
        or words[0] in bare["determiners"]
    ):
        return phrase
    return ("an " if words[0][0] in _VOWELS else "a ") + phrase
