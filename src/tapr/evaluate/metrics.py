"""Metrics as data: `mAP@5`, `R@1`, `Rsubset@1`, `Hit@10`. Each is a function of the ranks of a query's right answers.

Ranks count from 1. An answer that is not in the ranking has rank infinity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput

Kind = Literal["mAP", "tAP", "R", "Rsubset", "Hit"]
ALL = 0  # k of a metric over the whole ranking


@dataclass(frozen=True)
class AnswerRanks:
    """The ranks of one query's right answers in one ranking."""

    right: tuple[float, ...]  # of every right answer; the target comes first
    subset: float = math.inf  # of the target within the query's subset, without the reference

    @property
    def target(self) -> float:
        return self.right[0]


@dataclass(frozen=True)
class Metric:
    kind: Kind
    k: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.k or 'all'}"

    @classmethod
    def parse(cls, name: str) -> Metric:
        kind, _, k = name.partition("@")
        if name == "tAP@all":
            return cls("tAP", ALL)
        if kind not in get_args(Kind) or kind == "tAP" or not re.fullmatch("[1-9][0-9]{0,8}", k):
            raise BadInput(f"unknown metric {name!r}: write one such as mAP@5, R@10, Rsubset@1 or Hit@10")
        return cls(kind, int(k))  # type: ignore[arg-type]

    def value(self, places: AnswerRanks) -> float:
        """The metric of one query, from 0 to 1."""
        if self.kind == "tAP":
            return trapezoid_precision(places.right)
        if self.kind == "mAP":
            return average_precision(places.right, self.k)
        if self.kind == "Hit":
            return float(min(places.right) <= self.k)
        return float((places.target if self.kind == "R" else places.subset) <= self.k)


def average_precision(ranks: Sequence[float], k: int) -> float:
    """AP@k = sum over right answers in the top k of the precision at their rank, over min(number right, k)."""
    found = sorted(rank for rank in ranks if rank <= k)
    return sum(number / rank for number, rank in enumerate(found, 1)) / min(len(ranks), k)


def trapezoid_precision(ranks: Sequence[float]) -> float:
    """Average precision over the whole ranking by the trapezoidal rule, as the code of i-CIR and FREEDOM has it."""
    found = sorted(rank for rank in ranks if rank < math.inf)
    total = sum(
        ((1.0 if rank == 1 else before / (rank - 1)) + (before + 1) / rank) / 2 for before, rank in enumerate(found)
    )
    return total / len(ranks) if ranks else 0.0


def metrics(*names: str) -> tuple[Metric, ...]:
    return tuple(Metric.parse(name) for name in names)


def ranks_in_list(ranked: Sequence[str], right: Sequence[str], subset: Sequence[str] | None = None) -> AnswerRanks:
    """Ranks from a list of names, as in a submission. `subset` is the ranked list of the query's subset."""
    rank = {name: number for number, name in enumerate(ranked, 1)}
    in_subset = {name: number for number, name in enumerate(subset or (), 1)}
    return AnswerRanks(tuple(rank.get(name, math.inf) for name in right), in_subset.get(right[0], math.inf))


def ranks_in_scores(
    scores: NDArray[Any],  # (V, N), one row per variant; -inf: the picture is not ranked
    right: NDArray[np.int64],  # gallery positions of the right answers; the target comes first
    subset: NDArray[np.int64] | None = None,  # gallery positions of the subset, without the reference
) -> list[AnswerRanks]:
    """Ranks from scores, one AnswerRanks per variant. Equal scores keep gallery order, as in a stable sort."""
    ranks = np.stack([_ranks(scores, position) for position in right], axis=1)  # (V, answers)
    if subset is None:
        return answer_ranks(ranks, None)
    return answer_ranks(ranks, _ranks(scores[:, subset], int(np.flatnonzero(subset == right[0])[0])))


def answer_ranks(ranks: NDArray[np.float64], inside: NDArray[np.float64] | None) -> list[AnswerRanks]:
    """Ranks (V, answers), and ranks in the subset (V,) -> one AnswerRanks per variant."""
    if inside is None:
        return [AnswerRanks(tuple(row)) for row in ranks.tolist()]
    return [AnswerRanks(tuple(row), rank) for row, rank in zip(ranks.tolist(), inside.tolist(), strict=True)]


def _ranks(scores: NDArray[Any], position: int) -> NDArray[np.float64]:
    """(V, N) -> (V,): the rank of the picture at one position."""
    own = scores[:, position, None]
    before = (scores > own).sum(axis=1) + (scores[:, :position] == own).sum(axis=1)
    return np.where(np.isneginf(own[:, 0]), math.inf, before + 1.0)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The ranks of one method's right answers on every query. Means are over queries, or over group means (macro)."""

    ids: tuple[str, ...]
    ranks: tuple[tuple[AnswerRanks, ...], ...]  # per query; several if the value is a mean over several weightings
    groups: tuple[tuple[str, ...], ...]  # per query: the part or the kinds it belongs to
    macro: bool = False

    def values(self, metric: Metric) -> NDArray[np.float64]:
        return np.array([sum(metric.value(one) for one in places) / len(places) for places in self.ranks])

    def shares(self) -> NDArray[np.float64]:
        """The weight of each query in the mean; they sum to 1."""
        if not self.macro:
            return np.full(len(self.ids), 1 / len(self.ids))
        members = self.members()
        shares = np.zeros(len(self.ids))
        for rows in members.values():
            shares[rows] += 1 / (len(members) * len(rows))
        return shares

    def mean(self, metric: Metric) -> float:
        return float(self.values(metric) @ self.shares())

    def members(self) -> dict[str, NDArray[np.int64]]:
        """Group -> indices of its queries, in order of first appearance."""
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(self.groups):
            for name in names:
                rows.setdefault(name, []).append(row)
        return {name: np.array(found) for name, found in rows.items()}

    def only(self, group: str) -> Outcome:
        """The queries of one group."""
        rows = self.members().get(group)
        if rows is None:
            raise BadInput(f"there is no group {group!r}: the groups are {', '.join(self.members()) or 'none'}")
        return Outcome(
            tuple(self.ids[row] for row in rows),
            tuple(self.ranks[row] for row in rows),
            tuple(self.groups[row] for row in rows),
        )

    def by_group(self, metric: Metric) -> dict[str, float]:
        values = self.values(metric)
        return {name: float(values[rows].mean()) for name, rows in self.members().items()}


def summary(outcome: Outcome, wanted: Sequence[Metric], grouped: Sequence[Metric] = ()) -> dict[str, Any]:
    """All metrics in percent, ready for JSON; the `grouped` ones also per group."""
    out: dict[str, Any] = {str(metric): 100 * outcome.mean(metric) for metric in wanted}
    if grouped:
        by_metric: Mapping[str, Mapping[str, float]] = {str(metric): outcome.by_group(metric) for metric in grouped}
        out["groups"] = {
            name: {"queries": len(rows)} | {metric: 100 * by_metric[metric][name] for metric in by_metric}
            for name, rows in outcome.members().items()
        }
    return out
