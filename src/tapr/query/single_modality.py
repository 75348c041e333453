"""Searches by words alone or by a picture alone; they are ranked like every other search."""

from __future__ import annotations

from typing import Literal

from tapr.query.factorization import Factorization
from tapr.query.spec import EditSpec

WORDS: Literal["words alone"] = "words alone"  # what a ranking names as its factorizer
PICTURE: Literal["a picture alone"] = "a picture alone"


def words_alone(text: str) -> Factorization:
    """Target alone, from words that describe the picture wanted."""
    return Factorization(EditSpec(text.strip()), WORDS)


def picture_alone() -> Factorization:
    """Nothing but continuity: all of the reference stays, and the sentence weighs nothing."""
    return Factorization(EditSpec("a picture like this one", continuity=1.0), PICTURE)
