"""Numbers of pictures, such as bounds, held where they were computed: on the host, or by gpu_values.py on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tapr.search.kernels.base import Rows
from tapr.search.kernels.top_scores import best_of, largest_of
from tapr.types import Float32

Picked = tuple[Rows, Float32]  # indices of pictures, and their numbers
# Pictures put in order of promise; the others follow as they lie. Ordering a million takes longer than most limits of
# time (benchmarks/first_stage.py, docs/first_stage.md).
MAX_PICTURES_ORDERED = 1 << 16


class Values(Protocol):
    """One number per query and picture. A picture is named by its index among the rows of a search."""

    def best(self, count: int) -> list[Picked]:
        """The largest of each query, best first, equal ones by lower index. Bounds may come by what is likely."""

    def reaching(self, floors: Float32) -> list[Picked]:
        """All that are not below their query's floor, by index."""

    def named(self, rows: Rows) -> Values:
        """The same numbers, of pictures with these indices."""

    def descending(self, skipped: Rows) -> Any:
        """The indices of a single query's pictures but the skipped, largest number first; a sequence to be sliced."""


@dataclass(frozen=True, eq=False)
class HostValues:
    numbers: Float32  # (Q, R)
    rows: Rows | None = None  # (R,) the index of each picture; None: 0 to R - 1
    likely: Float32 | None = None  # (Q, R) orders bounds by what the scores seem to be; None: the numbers do

    def best(self, count: int) -> list[Picked]:
        ordered = self.numbers if self.likely is None else self.likely
        return [
            self._picked(best_of(order, count), numbers) for order, numbers in zip(ordered, self.numbers, strict=True)
        ]

    def reaching(self, floors: Float32) -> list[Picked]:
        return [
            self._picked(np.flatnonzero(numbers >= floor), numbers)
            for numbers, floor in zip(self.numbers, floors, strict=True)
        ]

    def descending(self, skipped: Rows) -> Rows:
        """The largest in order, and then the others as they lie."""
        (numbers,) = self.numbers
        wanted = np.ones(len(numbers), bool)
        wanted[skipped] = False
        first = largest_of(numbers, min(MAX_PICTURES_ORDERED, len(numbers)))
        first = first[wanted[first]]
        wanted[first] = False
        return np.concatenate([first[np.argsort(-numbers[first], kind="stable")], np.flatnonzero(wanted)])

    def named(self, rows: Rows) -> HostValues:
        return replace(self, rows=rows)

    def _picked(self, columns: Rows, numbers: Float32) -> Picked:
        return columns if self.rows is None else self.rows[columns], numbers[columns]
