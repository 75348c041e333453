"""From an edit as people write it to short lower-case clauses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tapr.factorize.grammar.words import lexicon, load

_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"[.;!?:]+(?:\s|$)|\s-+\s")
_WORD = re.compile(r"[^\W_](?:[\w'\-]*\w)?|,")
_JOINTS = frozenset(("and", "but", "while", "plus", "also", ",", "then", "or", "yet", "&", "whereas"))


@dataclass(frozen=True)
class Clause:
    words: tuple[str, ...]
    joint: str  # the word it was joined by: "" at the start of a sentence, "and", "but", ...

    @property
    def text(self) -> str:
        return " ".join(self.words)


@cache
def _rewrites() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in load("rewrites.json"))


def normalise(edit: str) -> str:
    """Lower case, one spelling, contractions and idioms opened: data/rewrites.json."""
    text = " " + edit.casefold() + " "
    for pattern, replacement in _rewrites():
        text = pattern.sub(replacement, text)
    return _SPACE.sub(" ", text).strip()


def split_clauses(edit: str) -> list[Clause]:
    """Split at sentence ends, commas and conjunctions, but not inside "black and white"."""
    clauses = []
    for sentence in _SENTENCE_END.split(normalise(edit)):
        words = _WORD.findall(sentence)
        start, joint = 0, ""
        for index in [i for i, word in enumerate(words) if word in _JOINTS] + [len(words)]:
            if index < len(words) and _joins_colours(words, index):
                continue
            part = tuple(word for word in words[start:index] if word != ",")
            if part:
                clauses.append(Clause(part, joint))
                joint = ""
            if index < len(words):
                joint = words[index] if joint in ("", ",", "and") else joint
            start = index + 1
    return clauses


def _joins_colours(words: list[str], index: int) -> bool:
    """Return whether this joint is between colours: "red, white and blue", "light blue and dark grey"."""
    lexis = lexicon()
    before = words[index - 1] if index else ""
    after = [word for word in words[index + 1 : index + 4] if word != "and"]
    if words[index] not in ("and", ",") or not lexis.is_colour(before) or not after:
        return False
    first = after[0]
    if first in lexis.classes["shades"] and len(after) > 1 and not lexis.is_colour(first):
        first = after[1]
    return lexis.is_colour(first) and before != first
