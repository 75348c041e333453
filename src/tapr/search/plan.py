"""Decide which stages a search runs, by the constants of this file. Sizes of one stage or kernel alone stand there.

The right column names the benchmark that measures what a constant changes; not each value was chosen by it.

| constant | benchmark |
|---|---|
| `MIN_PICTURES_PER_RESULT`, `MAX_PICTURES_SCORED_DIRECTLY` | benchmarks/match.py, benchmarks/codes.py |
| `MIN_PICTURES_PER_RESULT_BY_SUMMARIES`, `LEADERS...`, `...BATCH` | benchmarks/first_stage.py, benchmarks/million.py |
| `SUMMARIES_PER_PIECE...` | benchmarks/first_stage_cold.py |
| `PACE` | benchmarks/first_stage.py, budget_ms |
| `DEVICE_...` | benchmarks/first_stage_gpu.py |
| `MAX_SCORE_BYTES` | benchmarks/match_gpu.py |
| `WORTH` of store/summary.py | benchmarks/first_stage.py, docs/first_stage.md |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tapr.errors import BadInput
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.kernels.sketch import Sketch, level_of, sketches_of
from tapr.search.prefilter.device_bank import DeviceBank, DeviceSummaries
from tapr.search.prune import Pace, Stage, Stages
from tapr.search.stages.job import Job
from tapr.search.stages.scan import Scan
from tapr.search.stages.sketched import Sketched
from tapr.search.stages.summaries import Summaries
from tapr.store.summary import WORTH

MIN_PICTURES_PER_RESULT = 16  # with fewer pictures per result, a cheaper reading of all saves nothing
MAX_PICTURES_SCORED_DIRECTLY = 512  # so few are scored without a reading in between
MAX_SCORE_BYTES = 256 << 20  # of numbers per sweep; more queries are searched in groups

MIN_PICTURES_PER_RESULT_BY_SUMMARIES = 64  # with fewer, summaries save nothing
MIN_LEADERS, LEADERS_PER_RESULT = 128, 4  # pictures scored before any summary is read
SMALLEST_BATCH, LARGEST_BATCH = 256, 1024  # pictures scored at a time, after which the floor rises
SUMMARIES_PER_PIECE, SUMMARIES_PER_PIECE_ON_DISK = 1 << 16, 1 << 13  # bounded at a time
PACE = Pace(first=1 << 10, largest=1 << 14, smallest=1 << 8)  # pictures, where time is limited
DEVICE_PACE = Pace(first=1 << 20, largest=1 << 20, smallest=1 << 20)

Query = TypeVar("Query")


def has_first_stage(bank: Bank) -> bool:
    """Return whether a search of the bank can be limited by `prefilter` and `budget_ms`."""
    return bank.subspaces is not None


def pays_for(pictures: int, k: int) -> bool:
    """Return whether a first stage makes a search of so many pictures faster, with a kernel that gains by it."""
    return pictures >= max(WORTH, k * MIN_PICTURES_PER_RESULT_BY_SUMMARIES)


def uses_first_stage(bank: Bank, k: int, kernel: Kernel) -> bool:
    """Return whether a search uses the first stage unasked."""
    if not has_first_stage(bank) or not pays_for(len(bank), k):
        return False
    return kernel.gains_by_summaries or kernel.device_bank(bank, unasked=True) is not None


def groups_of(queries: Sequence[Query], pictures: int) -> Iterator[Sequence[Query]]:
    """Split queries into groups whose numbers fit memory."""
    size = max(1, MAX_SCORE_BYTES // max(1, 4 * pictures))
    for start in range(0, len(queries), size):
        yield queries[start : start + size]


def full_search(job: Job, k: int) -> Stages:
    """Choose the stages of a search that reads every picture at least once."""
    kernel, queries = job.kernel, job.queries
    levels = kernel.levels(job.bank, sum(len(query.probes) for query in queries))
    last = levels[-1]
    scans = [Scan(job, level, last, MAX_PICTURES_SCORED_DIRECTLY) for level in levels]
    if k * MIN_PICTURES_PER_RESULT > len(job.bank):
        return Stages(scans[-1])
    if kernel.sketcher is not None and (sketches := sketches_of(queries)):
        sketched = Sketched(job, kernel.sketcher, sketches, level_of(levels), last)
        return Stages(scans[-1], wide=[sketched], narrow=scans[:-1], leaders=k)
    return Stages(scans[-1], wide=scans[:-1][:1], narrow=scans[1:-1], leaders=k)


def search_by_summaries(job: Job, k: int, device: DeviceBank | None) -> Stages:
    """Choose the stages of a search that reads summaries first, on a device if one holds them."""
    kernel, levels = job.kernel, job.kernel.levels(job.bank)
    narrow: list[Stage] = []
    if kernel.sketcher is not None:
        sketches: list[Sketch | None] = [(sketches_of([query]) or (None,))[0] for query in job.queries]
        if any(sketches):
            narrow = [Sketched(job, kernel.sketcher, sketches, level_of(levels), levels[-1])]
    summaries = Summaries(job, levels[-1], piece=SUMMARIES_PER_PIECE, piece_on_disk=SUMMARIES_PER_PIECE_ON_DISK)
    first: Summaries | DeviceSummaries = summaries if device is None else device.stage(job, levels[-1])
    return Stages(
        Scan(job, levels[-1], levels[-1], reads_ahead=True),
        wide=[first] if device is None or device.closer else [first, summaries],
        narrow=narrow,
        guess=first,
        leaders=max(MIN_LEADERS, LEADERS_PER_RESULT * k),
        smallest_batch=SMALLEST_BATCH,
        largest_batch=LARGEST_BATCH,
        pace=PACE if device is None else DEVICE_PACE,
    )


def no_first_stage() -> BadInput:
    return BadInput("the gallery has no first stage: make one with tapr first-stage", code="no_prefilter")
