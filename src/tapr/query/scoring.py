"""Which score ranks, and how much the reference weighs in it: as a person asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tapr.errors import BadInput
from tapr.query.factors import Reads
from tapr.query.spec import checked_stay

Rule = Literal["paper", "fixed", "adaptive"]
RULES: tuple[Rule, ...] = get_args(Rule)
Looks = Literal["local", "global", "both"]  # what continuity looks at; the paper's is local
LOOKS: Mapping[Looks, Mapping[Reads, float]] = {
    "local": {"local": 1.0},
    "global": {"global": 1.0},
    "both": {"global": 0.5, "local": 0.5},
}


@dataclass(frozen=True)
class Scoring:
    """Which score: `paper` is the literal reading; `fixed` and `adaptive` give the whole picture a weight of its own.

    `stay`, and after it the spec's own continuity, go before the rule. The paper's score knows neither.
    """

    rule: Rule = "fixed"
    stay: float | None = None
    looks: Looks = "both"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise BadInput(f"unknown score {self.rule!r}: choose {', '.join(RULES)}")
        if self.looks not in LOOKS:
            raise BadInput(f"continuity looks at {', '.join(LOOKS)}, not at {self.looks!r}")
        if self.stay is not None:
            if self.rule == "paper":
                raise BadInput(
                    "the paper's score has no weight for how much of the picture stays: leave out stay, or paper"
                )
            object.__setattr__(self, "stay", checked_stay(self.stay))

    @classmethod
    def of(cls, rule: Rule | None, stay: float | None, looks: Looks | None) -> Scoring:
        """What was asked for; None is the default of each."""
        return cls(rule or DEFAULT_SCORING.rule, stay, looks or DEFAULT_SCORING.looks)

    def to_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "stay": self.stay, "looks": self.looks}


PAPER = Scoring("paper")
DEFAULT_SCORING = Scoring()
