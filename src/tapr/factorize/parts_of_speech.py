"""Nouns, verbs, adjectives, adverbs: a table of common English words, made from WordNet by tools/build_lexicon.py."""

from __future__ import annotations

from functools import cache

from tapr.factorize.grammar.words import load, singular


@cache
def parts_of_speech(word: str) -> str:
    """Return the word's letters, n, v, a and r, the most frequent first: "run" -> "vn". "" for a word of no table."""
    known = _table().get(word)
    if known is not None:
        return known[0]
    if (single := singular(word)) != word and "n" in _table().get(single, ("", ""))[0]:
        return "n"
    for ending in ("ing", "ed", "es", "s", "d"):
        stem = word.removesuffix(ending)
        bases = (stem, stem + "e", stem[:-1]) if stem != word and len(stem) > 2 else ()
        if any("v" in _table().get(base, ("", ""))[0] for base in bases):
            return "v"
    return "n" if "-" in word and parts_of_speech(word.rsplit("-", 1)[1]).startswith("n") else ""


def sense(noun: str) -> str:
    """Return the noun's first sense: person, animal, food, place, plant, body, group, stuff or thing; "" for others."""
    return (_table().get(noun) or _table().get(singular(noun)) or ("", ""))[1]


@cache
def _table() -> dict[str, tuple[str, str]]:
    table: dict[str, tuple[str, str]] = {}
    for kind, words in load("parts_of_speech.json").items():
        letters, _, first_sense = kind.partition(" ")
        table |= dict.fromkeys(words.split(), (letters, first_sense))
    return table
