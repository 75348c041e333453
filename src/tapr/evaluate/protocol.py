"""A protocol: all choices about a benchmark that change its numbers. It is printed beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tapr.evaluate.metrics import Metric


@dataclass(frozen=True)
class Protocol:
    dataset: str
    split: str
    gallery: str  # which pictures are ranked, in words
    keep_reference: bool  # whether the reference stays in the ranking
    edit_text: str  # how the query's text is made from the annotation
    metrics: tuple[Metric, ...]
    main: Metric  # compares methods and tunes weights
    grouped: tuple[Metric, ...] = ()  # also reported per group
    macro: bool = False  # report the mean of the groups' means
    hidden: bool = False  # only the benchmark's server knows the answers
    tunable: bool = True  # weights may be tuned on this split

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
