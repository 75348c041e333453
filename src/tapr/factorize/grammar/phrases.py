"""From the words of a clause to atoms: cut at "with" and at places, each piece made absolute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tapr.factorize.grammar.absolutes import PLAIN, Absolute, Manner, absolute
from tapr.factorize.grammar.words import NOUN_KINDS, is_plural, lexicon
from tapr.factorize.parts_of_speech import parts_of_speech

Role = Literal["thing", "quality", "action", "view"]
_BEARERS = {  # words that open what is had, and how Target says it
    "with": "with", "has": "with", "have": "with", "having": "with", "had": "with", "contains": "with", "as": "as",
    "containing": "with", "featuring": "with", "features": "with", "including": "with", "includes": "with",
    "shows": "with", "showing": "with", "plus": "with", "saying": "with", "says": "with", "reading": "with",
    "wearing": "wearing", "wears": "wearing", "wear": "wearing", "that": "", "which": "", "who": "", "where": "",
}  # fmt: skip
_VIEW_KINDS = frozenset(("viewpoint", "tint", "time", "weather", "season", "place"))
_SMALL_WORDS = frozenset(("and", "the", "off", "length", "in"))


@dataclass(frozen=True)
class Atom:
    """One constraint in words, and how it joins a sentence: "on" + "a" + "wooden table"."""

    text: str
    lead: str = ""
    determiner: str = ""

    @property
    def role(self) -> Role:
        role = role_of(self.text)
        is_named = self.determiner in ("a", "an") and len(self.text.split()) > 1  # "a sitting dog"
        return "thing" if role == "action" and is_named else role


@dataclass
class Chunk:
    lead: str
    words: list[str] = field(default_factory=list)

    @property
    def determiner(self) -> str:
        return self.words[0] if self.words and self.words[0] in lexicon().classes["determiners"] else ""


def role_of(phrase: str) -> Role:
    """Return whether the atom is a thing, a quality, something done, or a way the picture is taken."""
    lexis = lexicon()
    kind = lexis.kind(phrase)
    words = phrase.split()
    if kind in _VIEW_KINDS:
        return "view"
    if words[0] in lexis.classes["bound participles"] or (words[0].endswith("ing") and words[0] in lexis.inflections):
        return "action"
    if (kind and kind not in NOUN_KINDS) or phrase in lexis.meanings["alone"].values():
        return "quality"
    rest = [word for word in words if word not in _SMALL_WORDS]
    return "quality" if rest and all(lexis.is_quality(word) or _is_adjective(word) for word in rest) else "thing"


def _is_adjective(word: str) -> bool:
    """Return whether it is a word of no list of ours that is never a noun: "deserted"."""
    letters = parts_of_speech(word)
    return letters.startswith("a") and "n" not in letters and not lexicon().knows(word)


def chunks(words: Sequence[str]) -> list[Chunk]:
    """Cut at words of having and at places; "in the background" and "at the camera" stay with what they follow."""
    lexis = lexicon()
    out = [Chunk("")]
    index = 0
    while index < len(words):
        word, rest = words[index], words[index + 1 :]
        current = out[-1].words
        fixed = _fixed_place(word, rest) if current else 0
        if fixed:
            current += [word, *rest[:fixed]]
            index += fixed
        elif current and _is_bound(current[-1], word, rest):
            current.append(word)
        elif out[-1].lead in ("with", "wearing") and out[0].words and _is_main_verb(current, word, rest):
            out[0].words.append(word)
        elif word in _BEARERS:
            out.append(Chunk(_BEARERS[word]))
        elif word in lexis.classes["places"]:
            out.append(Chunk(word))
        else:
            current.append(word)
        index += 1
    return [chunk for chunk in out if chunk.words and not _is_idle_place(chunk)]


def atoms_in(words: Sequence[str], manner: Manner = PLAIN) -> list[tuple[Atom | None, Absolute]]:
    """Read every chunk of the words: the atom to add, if there is one, and whatever else the chunk says."""
    read = []
    for position, chunk in enumerate(chunks(words)):
        parsed = absolute(chunk.words, manner if position == 0 else replace(manner, adding=False, bare_verbs=False))
        read.append((Atom(parsed.add, chunk.lead, chunk.determiner) if parsed.add else None, parsed))
    return read


def _fixed_place(word: str, rest: Sequence[str]) -> int:
    """Return how many words after the preposition make a fixed place such as "in the background"."""
    if word not in ("in", "on", "at", "to"):
        return 0
    skip = 1 if rest and rest[0] in ("the", "a", "its") else 0
    end, follows = (rest[at] if len(rest) > at else "" for at in (skip, skip + 1))
    return skip + 1 if lexicon().has("place ends", end) and follows not in ("of", "seat", "wall") else 0


def _is_bound(last: str, word: str, rest: Sequence[str]) -> bool:
    """Return whether the preposition belongs to the verb before it: "covered with snow", "looking at the camera"."""
    lexis = lexicon()
    if lexis.has("bound participles", last) and word in ("with", "in", "by", "into", "on"):
        return word in ("with", "by", "into") or last in ("covered", "wrapped")
    goal = [item for item in rest[:3] if item not in ("the", "a", "its", "his", "her")]
    if word in lexis.classes["places"] and goal and lexis.has("directions", goal[0]):
        return True
    return word == "by" and last.endswith("ed")


def _is_main_verb(current: Sequence[str], word: str, rest: Sequence[str]) -> bool:
    """Return whether the verb belongs to the first noun: in "a dog with a collar sits on grass", to the dog."""
    lexis = lexicon()
    if not current or word == lexis.inflections.get(word, word) or lexis.is_quality(current[-1]):
        return False
    if word.endswith("ing") and not is_plural(current[-1]):
        return False
    return not rest or rest[0] in lexis.classes["places"] | lexis.classes["directions"]


def _is_idle_place(chunk: Chunk) -> bool:
    """Recognise places that say nothing about what is seen: "on it", "in its mouth", "at the waist", "in colour"."""
    lexis = lexicon()
    if chunk.lead not in lexis.classes["places"]:
        return False
    words = [word for word in chunk.words if word not in ("the", "a", "an")]
    return not words or words[0] in lexis.classes["possessives"] or (
        len(words) == 1 and (lexis.has("dropped places", words[0]) or words[0] in ("colour", "colours", "length"))
    )  # fmt: skip
