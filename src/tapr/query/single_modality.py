"""Searches by words alone or by a picture alone; they are ranked like every other search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tapr.errors import BadInput
from tapr.query.factorization import Factorization
from tapr.query.spec import EditSpec

WORDS: Literal["words alone"] = "words alone"  # what a ranking names as its factorizer
PICTURE: Literal["a picture alone"] = "a picture alone"

_WEIGHS_BOTH = ("reference", "edit", "spec", "factorizer", "weights", "score", "reference_weight", "method")
_MEANINGLESS = {  # beside the words: these weigh a picture; beside the picture: these weigh words
    "text": (*_WEIGHS_BOTH, "like", "reference_features", "crop", "more_references"),
    "like": (*_WEIGHS_BOTH, "text"),
}


def words_alone(text: object, beside: Mapping[str, object] | None = None) -> Factorization:
    """Target alone, from words that describe the picture wanted."""
    _refuse("text", beside or {})
    if not isinstance(text, str) or not text.strip():
        raise BadInput("text must be words that describe the picture, such as 'a dog on a beach'")
    return Factorization(EditSpec(text.strip()), WORDS)


def picture_alone(beside: Mapping[str, object] | None = None) -> Factorization:
    """Nothing but continuity: all of the reference stays, and the sentence weighs nothing."""
    _refuse("like", beside or {})
    return Factorization(EditSpec("a picture like this one", continuity=1.0), PICTURE)


def _refuse(half: str, beside: Mapping[str, object]) -> None:
    for name in _MEANINGLESS[half]:
        if beside.get(name) is not None:
            what = "words" if half == "text" else "a picture"
            raise BadInput(f"{half} is a search by {what} alone: leave out {name}, or leave out {half}")
