"""Edits that are not English: known by their words, and read word by word where our small table has them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tapr.factorize.caption.words import is_modifier
from tapr.factorize.grammar.words import lexicon, load

_WORD = re.compile(r"[^\W\d_](?:[\w'\-]*\w)?|[,.]")
_NOUN_FIRST = frozenset(("French", "Spanish", "Italian", "Portuguese"))  # "chien noir"


@dataclass(frozen=True)
class Translation:
    language: str  # "" when it is none of the table's
    text: str  # in English, as far as the table goes
    missing: tuple[str, ...] = ()  # words that stand as they were


def translated(edit: str) -> Translation | None:
    """Translate an edit word by word, with its own words where no table has them; None for English."""
    words = [word for word in _WORD.findall(edit.casefold().replace("’", "'")) if word not in ",."]
    if not words:
        return None
    if sum(not _is_latin(word) for word in words) > len(words) / 2:
        return Translation("", edit)
    foreign = [word for word in words if not _is_english(word)]
    best, hits = "", 0
    for language, table in _tables().items():
        known = sum(word in table for word in words)
        foreign_hits = sum(word in table for word in foreign)
        if foreign_hits and known > hits:
            best, hits = language, known
    if not best or len(foreign) * 2 < len(words) or hits * 2 < len(words):
        return None
    return _translate(best, _WORD.findall(edit.casefold().replace("’", "'")))


def _translate(language: str, words: list[str]) -> Translation:
    table = _tables()[language]
    out: list[str] = []
    missing = []
    for word in words:
        meaning = table.get(word)
        if meaning is None and word not in ",." and not _is_english(word):
            missing.append(word)
        meaning = word if meaning is None else meaning
        is_noun = (
            bool(out)
            and out[-1].isalpha()
            and (out[-1] in lexicon().things or out[-1].removesuffix("s") in lexicon().things)
        )
        if language in _NOUN_FIRST and is_noun and is_modifier(meaning):
            out.insert(-1, meaning)
        elif meaning:
            out.append(meaning)
    text = " ".join(out).replace(" ,", ",").replace(" .", ".")
    text = re.sub(r"\b(?:at the|in) instead of\b", "instead of", text)
    return Translation(language, re.sub(r"\b(the|a) (?:the|a)\b", r"\1", text).strip(), tuple(missing))


def _is_latin(word: str) -> bool:
    return all(ord(letter) < 0x250 for letter in word)


def _is_english(word: str) -> bool:
    return word.isascii() and (lexicon().knows(word) or word in _small_words())


@cache
def _small_words() -> frozenset[str]:
    return frozenset(
        [
            "i",
            "you",
            "we",
            "he",
            "she",
            "it",
            "this",
            "that",
            "make",
            "made",
            "please",
            "want",
            "like",
            "would",
            "could",
            "should",
            "love",
        ]
    )


@cache
def _tables() -> dict[str, dict[str, str]]:
    return {language: table["small"] | table["words"] for language, table in load("languages.json").items()}
