"""Which score ranks, and how much the reference weighs in it: as a person asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tapr.errors import BadInput
from tapr.query.factors import Reads
from tapr.query.spec import checked_reference_weight

Rule = Literal["paper", "fixed", "adaptive"]
RULES: tuple[Rule, ...] = get_args(Rule)
ReferenceFeatures = Literal["local", "global", "both"]  # what continuity looks at; the paper's is local
REFERENCE_FEATURES: Mapping[ReferenceFeatures, Mapping[Reads, float]] = {
    "local": {"local": 1.0},
    "global": {"global": 1.0},
    "both": {"global": 0.5, "local": 0.5},
}


@dataclass(frozen=True)
class Scoring:
    """Which score: `paper` is the literal reading; `fixed` and `adaptive` give the whole picture a weight of its own.

    `reference_weight`, and after it the spec's own continuity, go before the rule. The paper's score knows neither.
    """

    rule: Rule = "fixed"
    reference_weight: float | None = None
    reference_features: ReferenceFeatures = "both"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise BadInput(f"unknown score {self.rule!r}: choose {', '.join(RULES)}")
        if self.reference_features not in REFERENCE_FEATURES:
            known = ", ".join(REFERENCE_FEATURES)
            raise BadInput(f"unknown reference features {self.reference_features!r}: choose {known}")
        if self.reference_weight is not None:
            if self.rule == "paper":
                raise BadInput(
                    "the paper's score has no weight for how much of the picture stays: "
                    "leave out reference_weight, or paper"
                )
            object.__setattr__(self, "reference_weight", checked_reference_weight(self.reference_weight))

    def to_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "reference_weight": self.reference_weight,
            "reference_features": self.reference_features,
        }


PAPER = Scoring("paper")
DEFAULT_SCORING = Scoring()
