"""A protocol: everything about a benchmark that changes its figures, said in words beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tapr.evaluate.metrics import Metric


@dataclass(frozen=True)
class Protocol:
    dataset: str
    split: str
    gallery: str  # what is ranked, in words
    keep_reference: bool  # whether the reference stays in the ranking
    edit_text: str  # how the query's text is made from the annotation
    metrics: tuple[Metric, ...]
    main: Metric  # the one that methods are compared and weights tuned by
    grouped: tuple[Metric, ...] = ()  # those reported by group too
    macro: bool = False  # means are taken over groups' means
    hidden: bool = False  # the answers are on a server
    tunable: bool = True  # a validation split: weights may be chosen on it

    def to_dict(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "split": self.split,
            "gallery": self.gallery,
            "reference": "kept in the ranking" if self.keep_reference else "removed from the ranking",
            "edit_text": self.edit_text,
            "metrics": [str(metric) for metric in self.metrics],
            "main": str(self.main),
            "mean": "of the groups' means" if self.macro else "over queries",
        }

    def sentence(self) -> str:
        mean = "means of the groups' means" if self.macro else "means over queries"
        reference = "kept in" if self.keep_reference else "removed from"
        return (
            f"{self.dataset} {self.split}: {self.gallery}; the reference is {reference} the ranking; "
            f"query text: {self.edit_text}; {mean}"
        )
