"""What people read for a part of a score. The API and the documentation keep the method's own names."""

from __future__ import annotations

from tapr.query.factors import BY_NAME, Factor
from tapr.score.compile import CHOSEN, PARTS, WHOLE

_OF_A_PICTURE = {WHOLE: "overall look", PARTS: "details", CHOSEN: "selected area"}


def part_name(factor: Factor, text: str) -> str:
    """An atom is called by its words, Target by its label, for its sentence is told elsewhere."""
    if factor == "target":
        return BY_NAME[factor].label
    return text if BY_NAME[factor].from_words else picture_part(text)


def picture_part(text: str) -> str:
    """its parts (picture 2) -> details (picture 2)"""
    for name, said in _OF_A_PICTURE.items():
        if text.startswith(name):
            return said + text.removeprefix(name)
    return text
