"""How high a picture's score can be by its summary, whichever kernel computes it: limit.py, with all rounding added."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Level, Rows
from tapr.search.kernels.bounds import ULP, error_bound
from tapr.search.prefilter.candidates import resemblance
from tapr.search.prefilter.limit import Limit, limit_of
from tapr.store.codec import LONGEST
from tapr.types import Float32, Float64


def highest(
    queries: Sequence[CompiledQuery],
    bank: Bank,
    rows: Rows | None,
    kernel: Kernel,
    last: Level,
    *,
    floors: Float32 | None = None,
    targets: Float32 | None = None,
) -> Float32:
    """(Q, R): the highest score that `kernel` can give these rows (ascending, no repeats; None: all) at its last level.

    By their outlines; what then reaches a query's floor (Q,), by the summaries too. `targets`: those of their
    resemblance, where it is known.
    """
    assert bank.subspaces is not None
    count = bank.card.locals_count
    if targets is None:
        targets = resemblance(queries, bank, rows, kernel).targets
    limits = [limit_of(query, bank.subspaces, count) for query in queries]
    allowed = np.array([allowance(limit, kernel, last, count) for limit in limits], np.float32)
    below = None if floors is None else np.nextafter(floors.astype(np.float64) - allowed, -np.inf)
    found = kernel.bounder.limits(limits, bank, rows, targets, below)
    return np.asarray(np.nextafter(found + allowed[:, None], np.float32(np.inf)))


def allowance(limit: Limit, kernel: Kernel, last: Level, count: int, lost: Float64 | None = None) -> np.float32:
    """How far a score by `kernel` can be above the limit as computed."""
    query = limit.query
    # how far the kernel's score can be above the definition's: its local terms, then the target on both sides
    own = error_bound(query, kernel, last, last if last.codes else None, count)
    slack = limit.slack(count, lost) + float(own.of(np.zeros(1, np.float32), np)[0])
    length = float(np.linalg.norm(query.target.astype(np.float64))) * abs(query.target_weight)
    slack += 4 * (query.dim + 16) * ULP * length * LONGEST + 32 * ULP
    return np.float32(np.nextafter(np.float32(slack), np.float32(np.inf)))
