"""What people read for a part of a score. The API and the documentation keep the method's own names."""

from __future__ import annotations

from tapr.query.factors import BY_NAME, Factor
from tapr.score.compile import CHOSEN, MARKED, PARTS, WHOLE

_OF_A_PICTURE = {WHOLE: "overall look", PARTS: "details", CHOSEN: "selected area"}


def part_name(factor: Factor, text: str) -> str:
    """An atom is called by its words, Target by its label, for its sentence is told elsewhere."""
    if factor == "target":
        return BY_NAME[factor].label
    return marked_part(text) if BY_NAME[factor].from_words else picture_part(text)


def marked_part(text: str) -> str:
    """more like a.jpg: its parts -> more like a.jpg: details. Words stay as they are."""
    mark, colon, part = text.rpartition(": ")
    is_mark = mark.startswith(tuple(f"{words} " for words in MARKED.values())) and part in _OF_A_PICTURE
    return f"{mark}{colon}{_OF_A_PICTURE[part]}" if is_mark else text


def picture_part(text: str) -> str:
    """its parts (picture 2) -> details (picture 2)"""
    for name, said in _OF_A_PICTURE.items():
        if text.startswith(name):
            return said + text.removeprefix(name)
    return text
