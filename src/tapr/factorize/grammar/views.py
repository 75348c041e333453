"""Viewpoint, distance and black and white: ways of saying how the picture was taken."""

from __future__ import annotations

from tapr.factorize.grammar.patterns import pattern, views
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import ReadingDraft


def take_views(draft: ReadingDraft, text: str) -> str:
    """Move every such phrase from the text into the draft; returns what is left, "" when that says nothing."""
    rest = text
    for phrase, atom in views():
        if not (match := phrase.search(rest)):
            continue
        rest = f"{rest[: match.start()]} {rest[match.end() :]}".strip()
        if atom == "different viewpoint":
            draft.changed.add("viewpoint")
        elif atom != "same viewpoint":
            draft.take(Atom(atom))
    return text if rest == text else pattern("left of a view").sub("", rest)
