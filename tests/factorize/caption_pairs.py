"""The captions and edits with the spec a person expects, and what it means that a spec is the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tapr.factorize.caption import Edited, edit_caption
from tapr.factorize.grammar.words import singular
from tapr.factorize.wishes import read_wish
from tapr.query.spec import EditSpec

PAIRS: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("data").joinpath("captions_edits.jsonl").read_text().splitlines()
]
_SMALL = frozenset(
    [
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "be",
        "been",
        "being",
        "of",
        "in",
        "on",
        "at",
        "to",
        "with",
        "and",
        "by",
        "for",
        "from",
        "up",
        "down",
        "near",
        "next",
        "top",
        "front",
        "it",
        "its",
        "that",
        "which",
        "as",
        "through",
        "over",
        "into",
        "around",
        "side",
        "middle",
    ]
)


def content_words(sentence: str) -> frozenset[str]:
    """In the singular, in one spelling, without the small words."""
    text = sentence.casefold().replace("color", "colour").replace("gray", "grey")
    return frozenset(singular(word) for word in re.findall(r"[\w'-]+", text) if word not in _SMALL)


def normal(atoms: Iterable[str]) -> frozenset[str]:
    """Casefolded, articles dropped, order forgotten."""
    said = (atom.casefold().replace("color", "colour").split() for atom in atoms)
    return frozenset(" ".join(word for word in words if word not in ("a", "an", "the")) for words in said)


def answer(row: dict[str, Any]) -> Edited:
    return edit_caption(row["caption"], read_wish(row["edit"], row["caption"]).reading)


def wrong_parts(row: dict[str, Any]) -> list[str]:
    return differing(row, answer(row))


def differing(row: dict[str, Any], made: Edited | EditSpec) -> list[str]:
    """Which of Target's content words, Add, Preserve and Remove are not those expected."""
    wrong = [] if content_words(made.target) == content_words(row["target"]) else ["target"]
    wrong += [
        factor for factor in ("add", "preserve", "remove") if normal(getattr(made, factor)) != normal(row[factor])
    ]
    return wrong
