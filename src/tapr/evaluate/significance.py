"""Bootstrap intervals and paired randomisation tests, over queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.evaluate.metrics import Metric, Outcome

DRAWS = 2000
_CHUNK = 250  # bootstrap samples in memory at once


@dataclass(frozen=True)
class Interval:
    """A value in percent with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Difference:
    """First minus second, in percentage points, on the same queries."""

    interval: Interval
    p_value: float  # of the paired randomisation test
    wins: int  # queries on which the first is better
    losses: int
    queries: int

    def __str__(self) -> str:
        return (
            f"{self.interval.value:+.2f} [{self.interval.low:+.2f}, {self.interval.high:+.2f}], p = {self.p_value:.4f}"
        )


def interval(outcome: Outcome, metric: Metric, seed: int = 0) -> Interval:
    """Bootstrap over queries; within each group if the metric is a mean of groups."""
    values = 100 * outcome.values(metric)
    return _around(outcome.mean(metric) * 100, _resampled_means(values, outcome, seed))


def difference(first: Outcome, second: Outcome, metric: Metric, seed: int = 0) -> Difference:
    """Paired: the bootstrap draws the same queries for both methods, and the test swaps the two methods at random."""
    if first.ids != second.ids:
        raise BadInput("the two runs answer different queries: compare runs of one dataset, split and protocol")
    return difference_of(100 * (first.values(metric) - second.values(metric)), first, seed)


def difference_of(deltas: NDArray[np.float64], first: Outcome, seed: int = 0) -> Difference:
    """The same, from one difference per query in points. `first` says how queries are averaged."""
    shares = first.shares()
    value = float(deltas @ shares)
    around = _around(value, _resampled_means(deltas, first, seed))
    signs = np.random.default_rng(seed + 1)
    extreme = 0
    for start in range(0, DRAWS, _CHUNK):
        flips = signs.integers(0, 2, (min(_CHUNK, DRAWS - start), len(deltas)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(flips @ (deltas * shares)) >= abs(value) - 1e-12).sum())
    return Difference(
        around, (extreme + 1) / (DRAWS + 1), int((deltas > 0).sum()), int((deltas < 0).sum()), len(deltas)
    )


def _around(value: float, means: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(value), float(low), float(high))


def _resampled_means(values: NDArray[np.float64], outcome: Outcome, seed: int) -> NDArray[np.float64]:
    """(DRAWS,): means of queries drawn with replacement."""
    draw = np.random.default_rng(seed)
    strata = list(outcome.members().values()) if outcome.macro else [np.arange(len(values))]
    means = np.zeros(DRAWS)
    for start in range(0, DRAWS, _CHUNK):
        count = min(_CHUNK, DRAWS - start)
        for rows in strata:
            picked = rows[draw.integers(0, len(rows), (count, len(rows)))]
            means[start : start + count] += values[picked].mean(axis=1) / len(strata)
    return means
