"""Bounds from a cheaper reading of the vectors, and scores from the most precise one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tapr.search.kernels.base import Level, Rows
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.search.kernels.values import Values
from tapr.search.stages.job import Job
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class Scan:
    """A reading at one level. At the last level its bounds are the scores."""

    job: Job
    level: Level
    last: Level
    min_pictures: int = 0
    reads_ahead: bool = False  # not after a sweep that has read all

    def bounds(self, queries: Sequence[int], rows: Rows | None, floors: Float32 | None) -> Values:
        job = self.job
        wanted = [job.queries[query] for query in queries]
        values = job.kernel.bounds(wanted, job.bank, self.level, self.last, job.selection.physical(rows))
        return values if rows is None else values.named(rows)

    def score(self, rows: Sequence[Rows]) -> list[Float32]:
        job = self.job
        wanted = [job.selection.physical(chosen) for chosen in rows]
        read = job.kernel.read(job.queries, job.bank, self.level, wanted)  # type: ignore[arg-type]  # none is all
        return [refuse_odd_scores(scores) for scores in read]

    def expect(self, rows: Rows) -> None:
        if not self.reads_ahead:
            return
        kinds = ("local_codes", "local_scales") if self.level.codes else ("local_vectors",)
        self.job.expect(rows, "global_vectors", *kinds)
