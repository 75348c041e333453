"""The edit itself as the spec: the plain baseline, and the fallback for those who ask for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapr.errors import BadInput
from tapr.factorize.row import FactorizerRow
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import MAX_ATOM_CHARACTERS, MAX_TARGET_CHARACTERS, EditSpec

NAME = "target-only"


class TargetOnlyFactorizer:
    """Reads neither the picture nor the words: the edit is Target, and the one Add."""

    name = NAME

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        return target_only(edit)


def target_only(edit: str, failure: str | None = None, details: Mapping[str, Any] | None = None) -> Factorization:
    """Take the edit as Target, flagged in notes and details, so that nobody takes it for a factorized edit."""
    text = " ".join(edit.split())
    if not text:
        raise BadInput("the edit is empty: say in words how the picture you want differs", code="empty_edit")
    target, atom = _cut(text, MAX_TARGET_CHARACTERS), _cut(text, MAX_ATOM_CHARACTERS)
    notes = ["not factorized: the edit itself stands as Target and as the only Add"]
    if failure is not None:
        notes.append(f"fallback, because {failure}")
    if len(atom) < len(text):
        notes.append(f"the edit has {len(text)} characters: Target keeps {len(target)} of them, Add {len(atom)}")
    flags: dict[str, Any] = {"fallback": failure is not None}
    if failure is not None:
        flags["failure"] = failure
    return Factorization(EditSpec(target, add=(atom,)), NAME, tuple(notes), {**(details or {}), **flags})


def _cut(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters, ending with a whole word where there is one."""
    if len(text) <= limit:
        return text
    return text[: limit + 1].rpartition(" ")[0] or text[:limit]


ROWS = (
    FactorizerRow(
        NAME,
        "The edit itself is Target and the only Add: a plain baseline.",
        lambda setting: TargetOnlyFactorizer(),
        order=60,
        remembers=False,
    ),
)
