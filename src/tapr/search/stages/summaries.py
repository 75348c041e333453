"""Candidates and bounds from the summaries of a first stage, read on the host: search/prefilter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tapr.search.kernels.base import Level, Rows
from tapr.search.kernels.values import HostValues
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import resemblance
from tapr.search.stages.job import Job
from tapr.types import Float32

_RECORDS = ("pooled", "outlines", "summaries", "global_vectors")  # the arrays that bounds read


class Summaries:
    """The first stage: what pictures resemble the query, and how high their scores can be."""

    min_pictures = 0

    def __init__(self, job: Job, last: Level, *, piece: int, piece_on_disk: int) -> None:
        """`piece`: rows bounded at a time."""
        self._job, self._last, self._piece, self._piece_on_disk = job, last, piece, piece_on_disk
        self._targets: Float32 | None = None  # (Q, R), once known

    def promise(self) -> HostValues:
        job = self._job
        likeness = resemblance(job.queries, job.bank, job.selection.rows, job.kernel)
        self._targets = likeness.targets
        return HostValues(likeness.promise)

    def bounds(self, queries: Sequence[int], rows: Rows | None, floors: Float32 | None) -> HostValues:
        if rows is not None:
            rows = np.sort(rows)
            self._job.expect(rows, *_RECORDS)
            return HostValues(self._bounds(queries, rows, floors), rows)
        bounds = np.empty((len(queries), self._job.selection.count), np.float32)
        for piece in self._pieces():
            bounds[:, piece] = self._bounds(queries, piece, floors)
        return HostValues(bounds)

    def _bounds(self, queries: Sequence[int], rows: Rows | slice, floors: Float32 | None) -> Float32:
        job, targets = self._job, self._targets
        indices = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        return highest(
            [job.queries[query] for query in queries],
            job.bank,
            job.selection.physical(indices),
            job.kernel,
            self._last,
            floors=floors,
            targets=None if targets is None else targets[list(queries)][:, rows],
        )

    def _pieces(self) -> Iterator[slice]:
        """All rows in the order of the bank; of those on a disk, one piece is expected while the last is bounded."""
        job, count = self._job, self._job.selection.count
        on_disk = not job.in_memory(*_RECORDS)
        size = min(self._piece, self._piece_on_disk) if on_disk else self._piece
        if on_disk:
            job.expect(slice(0, size), *_RECORDS)
        for start in range(0, count, size):
            if on_disk:
                job.expect(slice(start + size, start + 2 * size), *_RECORDS)
            yield slice(start, min(count, start + size))
