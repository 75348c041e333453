"""Kinds of edits, and how much of the reference stays for each: the one table of it.

Chosen on EmojiCIR val, CL-LaSCo tune and the development sets of docs/quality.md, which has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tapr.errors import BadSpec


@dataclass(frozen=True)
class EditKind:
    says: str  # to the person who asked
    reference_weight: float


EDIT_KINDS: Mapping[str, EditKind] = {
    "medium": EditKind("the same thing in another medium or style", 0.1),
    "description": EditKind("a whole description", 0.3),
    "replacement": EditKind("another thing in its place", 0.3),
    "place": EditKind("another place, time or weather", 0.3),
    "count": EditKind("another number of things", 0.5),
    "removal": EditKind("something taken away", 0.5),
    "person": EditKind("a person's look or role", 0.45),
    "attribute": EditKind("an attribute of the same thing", 0.45),
    "change": EditKind("a small change", 0.4),
}
UNSURE_WEIGHT = 0.4  # of an edit whose kind is not known: the middle


def checked_kind(name: Any) -> str:
    if name not in EDIT_KINDS:
        raise BadSpec(f"unknown kind of edit {name!r}: the kinds are {', '.join(EDIT_KINDS)}")
    return str(name)
