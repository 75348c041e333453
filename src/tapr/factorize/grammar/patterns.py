"""The regular expressions of the rules, with the lists of words put in: data/rules.json, data/views.json."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from tapr.factorize.grammar.words import lexicon, load


@cache
def pattern(name: str) -> re.Pattern[str]:
    """Return one of the named patterns: "filler", "contrast", ..."""
    return re.compile(load("rules.json")[name])


@cache
def rows() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return (handler, pattern of a whole clause), in the order they are tried."""
    data = load("rules.json")
    lists = {group: any_of(verbs) for group, verbs in lexicon().verbs.items()}
    became = lists.pop("became")
    macros = data["macros"] | lists | {"actions": any_of(lexicon().meanings["actions"])}
    out = []
    for handler, text in data["rows"]:
        for name, value in macros.items():
            text = text.replace(f"{{{name}}}", value)  # noqa: PLW2901
        out.append((handler, re.compile(text.replace("{became verbs}", became) + "$")))
    return tuple(out)


@cache
def views() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return (phrase, what it says of the viewpoint)."""
    return tuple((re.compile(rf"(?:^|\b)(?:{text})(?!\w)"), atom) for text, atom in load("views.json"))


def any_of(phrases: Iterable[str]) -> str:
    """Return a pattern of alternatives, longest first, so that "take away" goes before "take"."""
    return "(?:" + "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)) + ")"
