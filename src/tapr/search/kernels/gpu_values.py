"""Numbers of pictures on a device. Only those that are asked for come to the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tapr.search.kernels.base import Rows
from tapr.search.kernels.gpu_topk import largest
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.search.kernels.values import Picked, Values
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class DeviceValues:
    """As values.HostValues. `alone` runs work while nothing else uses the device."""

    numbers: Any  # (Q, R)
    alone: Callable[[Callable[[], Any]], Any]
    rows: Rows | None = None  # (R,) the index of each picture; None: 0 to R - 1
    likely: Any = None  # (Q, R) orders bounds by what the scores seem to be; None: the numbers do

    def best(self, count: int) -> list[Picked]:
        def work() -> Any:
            columns, numbers = largest(self.numbers if self.likely is None else self.likely, count)
            both = torch.stack([columns, numbers.contiguous().view(torch.int32).long()]).cpu().numpy()  # one transfer
            return both[0], both[1].astype(np.int32).view(np.float32)

        columns, numbers = self.alone(work)
        refuse_odd_scores(numbers)  # NaN comes first
        return [(self._named(chosen), values) for chosen, values in zip(columns, numbers, strict=True)]

    def reaching(self, floors: Float32) -> list[Picked]:
        def work() -> Any:
            least = torch.from_numpy(floors).to(self.numbers.device)[:, None]
            query, columns = (self.numbers >= least).nonzero(as_tuple=True)
            return (part.cpu().numpy() for part in (query, columns, self.numbers[query, columns]))

        query, columns, numbers = self.alone(work)
        cuts = np.searchsorted(query, np.arange(1, len(self.numbers)))
        split = zip(np.split(columns, cuts), np.split(numbers, cuts), strict=True)
        return [(self._named(chosen), values) for chosen, values in split]

    def named(self, rows: Rows) -> DeviceValues:
        return replace(self, rows=rows)

    def descending(self, skipped: Rows) -> Any:
        def work() -> Any:
            numbers = self.numbers[0].clone()
            numbers[torch.from_numpy(skipped).to(numbers.device)] = -torch.inf
            return torch.sort(numbers, descending=True, stable=True)[1][: len(numbers) - len(skipped)]

        return self.alone(work)

    def _named(self, columns: Rows) -> Rows:
        return columns if self.rows is None else np.asarray(self.rows[columns])


@dataclass(frozen=True, eq=False)
class RecordedValues:
    """Scores whose k best a recorded graph can compute in one go: gpu_graph.py."""

    play: Callable[[int], Picked | None]  # the k best; None if there is no recording for them
    scan: Callable[[], Values]  # all scores

    def best(self, count: int) -> list[Picked]:
        picked = self.play(count)
        return self.scan().best(count) if picked is None else [picked]

    def reaching(self, floors: Float32) -> list[Picked]:
        return self.scan().reaching(floors)

    def named(self, rows: Rows) -> Values:
        return self.scan().named(rows)

    def descending(self, skipped: Rows) -> Any:
        return self.scan().descending(skipped)
