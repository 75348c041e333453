"""What is said of a picture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tapr.encoders.base import EncoderCard
from tapr.encoders.registry import DEFAULT_ENCODER

MIN_SURE_CHANCE = 0.5  # right more often than not
MIN_TITLE_CHANCE = 0.85  # so sure that it may stand under a picture as its title
_SAID_TWICE = frozenset(("and", "the", "with", "two", "one"))  # words that a good sentence may repeat


@dataclass(frozen=True)
class Description:
    """A picture in words, and the chance from 0 to 1 that they are right (docs/models.md says how it was measured)."""

    text: str
    score: float

    @property
    def sure(self) -> bool:
        return self.score >= MIN_SURE_CHANCE

    @property
    def is_title(self) -> bool:
        """Return whether it may stand under a picture: surely right, and naming nothing twice ("a hat with a hat")."""
        words = re.findall(r"[a-z]{3,}", self.text.casefold())
        named = [word.rstrip("es") for word in words if word not in _SAID_TWICE]  # "dress" and "dresses" are the same
        return self.score >= MIN_TITLE_CHANCE and len(set(named)) == len(named)

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"text": self.text, "score": round(self.score, 4), "sure": self.sure}


def has_captioner(card: EncoderCard) -> bool:
    """Return whether it is the default encoder, with any extractor, centred or not: global vectors stay the same."""
    return card.name == DEFAULT_ENCODER
