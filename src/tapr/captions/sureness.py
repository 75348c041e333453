"""How sure a caption is: the chance that it is right, as measured on pictures that the captioner never saw.

A caption counts as right when at least half of its content words were said of the picture by people. Two things tell
right from wrong: how likely the network found its own words, and the cosine of the caption with the picture in the
text tower. Neither means the same in the three manners of speaking that the captioner has learned, so each manner has
its own line, fitted by `tools/calibrate_captioner.py`; docs/models.md has the figures.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Regression:
    """A logistic regression on two numbers."""

    log_probability: float
    cosine: float
    constant: float

    def __call__(self, log_probability: float, cosine: float) -> float:
        odds = self.log_probability * log_probability + self.cosine * cosine + self.constant
        return (1 + math.tanh(odds / 2)) / 2  # the logistic function, in a form that cannot overflow


LINES = {
    "sentence": Regression(3.25, 13.58, 0.17),
    "product": Regression(12.69, 4.42, 4.38),
    "emoji": Regression(5.24, 27.57, -5.45),
}
_MANNERS = {
    "emoji": re.compile(r"an emoji of\b"),
    "product": re.compile(r"(men|women|boys|girls|unisex)'s\b"),
}


def manner(caption: str) -> str:
    """Return a caption's style: a sentence, a product of a catalogue, an emoji's name."""
    return next((name for name, start in _MANNERS.items() if start.match(caption)), "sentence")


def chance_of_being_right(caption: str, log_probability: float, cosine: float) -> float:
    """Estimate from the mean log-probability of its words and the text tower's cosine with the picture; 0 to 1."""
    return LINES[manner(caption)](log_probability, cosine)
