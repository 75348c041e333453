"""Typing errors: an unknown word that is one or two letters away from a known word."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from tapr.factorize.grammar.words import lexicon, load

_WORD = re.compile(r"[a-z]+")
_MIN_CORRECTED_LETTERS = 4  # shorter words have too many neighbours
_MIN_LETTERS_OF_TWO_SLIPS = 8  # from here on two letters may be wrong
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_BESIDE = {letter: row[max(at - 1, 0) : at] + row[at + 1 : at + 2] for row in _KEYS for at, letter in enumerate(row)}
_ENDINGS = ("s", "es", "ed", "d", "r", "er", "est", "ing", "ly", "y", "n", "ish", "less", "ful", "like", "ness")


def mended(text: str, more: Iterable[str] = ()) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Put a text's slips right, and return which they were. `more`: further words in use, such as a caption's."""
    slips: dict[str, str] = {}
    in_use = frozenset(word for word in more if len(word) >= _MIN_CORRECTED_LETTERS)
    for word in dict.fromkeys(_WORD.findall(text)):
        if len(word) >= _MIN_CORRECTED_LETTERS and word not in in_use and not is_word(word):
            meant = _nearest(word, in_use)
            if meant:
                slips[word] = meant
    for word, meant in slips.items():
        text = re.sub(rf"(?<![\w-]){word}(?![\w-])", meant, text)
    return text, tuple(slips.items())


@cache
def is_word(word: str) -> bool:
    """Return whether it is English by our own lists and the text tower's. Such a word is never changed."""
    known = known_words()
    if word in known or lexicon().knows(word):
        return True
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if (
            stem != word
            and len(stem) >= 3
            and any(base in known for base in (stem, stem + "e", stem[:-1], stem[:-1] + "y"))
        ):
            return True
    return any(word[:cut] in known and word[cut:] in known for cut in range(3, len(word) - 2))


@cache
def known_words() -> frozenset[str]:
    """Return the whole words of the shipped tokenizer, some 22,000 of common English, and our own."""
    file = files("tapr.encoders").joinpath("data", "clip_b16_text", "tokenizer.json")
    pieces = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    return (
        frozenset(piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1)
        | _in_use()
        | _more_words()
    )


@cache
def _more_words() -> frozenset[str]:
    """Return English that neither list has and that looks like a slip, from 10,417 edits and 125,310 captions."""
    return frozenset(load("english.json").split())


@cache
def _in_use() -> frozenset[str]:
    lexis = lexicon()
    words = {word for group in lexis.classes.values() for word in group} | set(lexis.inflections) | lexis.things
    words |= {word for phrase in lexis.kinds for word in phrase.split()} | {"instead", "without"}
    return frozenset(
        word for word in words if word.isalpha() and word.islower() and len(word) >= _MIN_CORRECTED_LETTERS
    )


@cache
def _by_first() -> dict[str, list[str]]:
    by_letter: dict[str, list[str]] = defaultdict(list)
    for word in sorted(_in_use()):
        by_letter[word[0]].append(word)
    return by_letter


def _nearest(word: str, more: frozenset[str]) -> str:
    """Return the one word in use that is nearest; "" when none is near, or two are equally so."""
    limit = 2 if len(word) >= _MIN_LETTERS_OF_TWO_SLIPS else 1
    words = {*_by_first().get(word[0], ()), *_by_first().get(word[1], ()), *more}
    near: dict[int, list[str]] = defaultdict(list)
    for other in words:
        if abs(len(other) - len(word)) <= limit and (distance := _distance(word, other, limit)) <= limit:
            near[distance].append(other)
    best = near[min(near)] if near else []
    return best[0] if len(best) == 1 else ""


def _distance(word: str, other: str, limit: int) -> int:
    """Count what fingers do between two words: a letter left out, doubled, swapped or hit beside its key costs 1.

    Anything else costs 2, so that "flask" is no slip for "flash". Above the limit only that it is above is known.
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(word, start=1):
        extra = 1 if _is_slip(letter, word[row - 2 : row - 1] + word[row : row + 1], len(word)) else 2
        now = [last[0] + extra]
        for column, goal in enumerate(other, start=1):
            changed = 0 if letter == goal else 1 if _is_slip(letter, goal, len(word)) else 2
            cost = min(last[column] + extra, now[-1] + 1, last[column - 1] + changed)
            if row > 1 and column > 1 and letter == other[column - 2] and word[row - 2] == goal:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        if min(now) > limit:
            return limit + 1
        before, last = last, now
    return last[-1]


def _is_slip(letter: str, near: str, length: int) -> bool:
    """Return whether the letter is one of those meant, on a key beside it, or a vowel for a vowel in a long word."""
    vowels = length >= _MIN_LETTERS_OF_TWO_SLIPS - 1 and letter in "aeiouy"
    return any(letter == other or other in _BESIDE.get(letter, "") or (vowels and other in "aeiouy") for other in near)
