"""Queries that have probes in common, such as those of one reference: every probe is matched once for all of them.

A score is the target's dot product and one mean per probe, each times its weight, summed in float64 in the order of the
probes. A product of two float32 numbers is exact in float64, so the sums here have the bits of the compiled kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.encoders.base import Float32
from tapr.match.base import Bank, Kernel
from tapr.match.choose import choose_kernel
from tapr.match.parts import distinct
from tapr.match.ranked import refuse_odd_scores
from tapr.match.sweep import check, score_many
from tapr.score.compile import CompiledQuery

_BYTES = 256 << 20  # of means held at once
_WORTH = 0.8  # share of probes that are left, from which the plain way is as fast


def score_shared(queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel | None = None) -> Float32:
    """score_many, bit by bit; faster where many probes are the same."""
    kernel = kernel or choose_kernel()
    check(queries, bank)
    means_of = getattr(kernel, "means", None)
    tau = queries[0].tau if queries else 0.0
    if means_of is None or bank.precision != "fp16" or any(query.tau != tau for query in queries):
        return score_many(queries, bank, kernel)
    row_of: dict[bytes, int] = {}
    probes: list[Float32] = []
    places = []  # of each query's probes among the distinct ones
    for query in queries:
        vectors = np.ascontiguousarray(query.probes, np.float32)
        for vector in vectors:
            if row_of.setdefault(vector.tobytes(), len(probes)) == len(probes):
                probes.append(vector)
        places.append([row_of[vector.tobytes()] for vector in vectors])
    rows, back = distinct(bank.rows, bank.row_count)
    read = bank.row_count if rows is None else len(rows)
    if len(probes) > _WORTH * sum(map(len, places)) or 4 * len(probes) * read > _BYTES:
        return score_many(queries, bank, kernel)
    means = means_of(np.stack(probes), tau, bank, rows)  # (P, R)
    dots = means_of(None, tau, bank, rows, np.stack([query.target for query in queries]))  # (Q, R)
    scores = np.empty(dots.shape, np.float32)
    for number, query in enumerate(queries):
        total = np.float64(np.float32(query.target_weight)) * dots[number].astype(np.float64)
        for place, weight in zip(places[number], np.asarray(query.weights, np.float32), strict=True):
            if weight:
                total += np.float64(weight) * means[place].astype(np.float64)
        scores[number] = total
    refuse_odd_scores(scores)
    return np.asarray(scores if back is None else scores[:, back], np.float32)
