"""What kernels on the host have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Level, Rows, SketchingKernel
from tapr.search.kernels.bounds import error_bound, row_errors
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.search.kernels.values import HostValues
from tapr.types import Float32

if TYPE_CHECKING:
    from tapr.search.prefilter.device_bank import DeviceBank


class HostKernel(ABC):
    gains_by_summaries = False

    @abstractmethod
    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]: ...

    @abstractmethod
    def score(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None
    ) -> Float32: ...

    def bounds(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, rows: Rows | None
    ) -> HostValues:
        scores = refuse_odd_scores(self.score(queries, bank, level, rows))
        if level == last:
            return HostValues(scores)
        errors, highest = row_errors(bank, rows), np.empty_like(scores)
        for number, query in enumerate(queries):
            radii = error_bound(query, self, level, last, bank.card.locals_count).of(errors, np)
            np.nextafter(scores[number] + radii, np.float32(np.inf), out=highest[number])
        return HostValues(highest, likely=scores)

    def read(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Sequence[Rows]) -> list[Float32]:
        return [
            self.score([query], bank, level, wanted)[0] if len(wanted) else np.zeros(0, np.float32)
            for query, wanted in zip(queries, rows, strict=True)
        ]

    @property
    def sketcher(self) -> SketchingKernel | None:
        return None

    def device_bank(self, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
        return None
