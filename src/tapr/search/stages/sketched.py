"""Bounds from sketches, which read a picture whole and multiply less: search/kernels/sketch.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tapr.search.kernels.base import Level, Rows, SketchingKernel
from tapr.search.kernels.bounds import row_errors
from tapr.search.kernels.sketch import Sketch
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.search.kernels.values import HostValues
from tapr.search.stages.job import Job
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class Sketched:
    job: Job
    sketcher: SketchingKernel
    sketches: Sequence[Sketch | None]  # of each query; None: it has no sketch, and is not bounded
    level: Level
    last: Level
    min_pictures: int = 0

    def bounds(self, queries: Sequence[int], rows: Rows | None, floors: Float32 | None) -> HostValues:
        job, sketches = self.job, [sketch for query in queries if (sketch := self.sketches[query]) is not None]
        if len(sketches) < len(queries):
            count = job.selection.count if rows is None else len(rows)
            return HostValues(np.full((len(queries), count), np.inf, np.float32), rows)  # nothing is ruled out
        physical = job.selection.physical(rows)
        limits = [sketch.longest(job.kernel, self.level, row_errors(job.bank)) for sketch in sketches]
        highest = refuse_odd_scores(self.sketcher.highest(sketches, limits, job.bank, self.level, physical))
        errors = row_errors(job.bank, physical)
        for number, sketch in enumerate(sketches):
            highest[number] += sketch.slack(job.kernel, self.level, self.last, errors, job.locals_count)
        np.nextafter(highest, np.float32(np.inf), out=highest)
        return HostValues(highest, rows)
