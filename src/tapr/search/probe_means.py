"""Shares probe matches between queries with common probes, such as queries with the same reference.

A score is the target's dot product plus one mean per probe, each times its weight, summed in float64 in the order of
the probes. Products of two float32 numbers are exact in float64, so these sums have the same bits as the compiled
kernel's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, Rows
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.row_blocks import distinct
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.search.sweep import check, score_many
from tapr.types import Float32

_BYTES = 256 << 20  # of means in memory
BEST = 0.0  # used like a tau: only the best match counts
_WORTH = 0.8  # share of distinct probes from which plain scoring is as fast


@runtime_checkable
class MeansKernel(Kernel, Protocol):
    """A kernel that can also return the parts of a score, with the bits they have inside a score."""

    def means(self, probes: Float32, taus: Sequence[float], bank: Bank, rows: Rows | None) -> Float32:
        """(P, d) -> (T, P, R): soft means; at BEST, the best match."""

    def dots(self, targets: Float32, bank: Bank, rows: Rows | None) -> Float32:
        """(Q, d) -> (Q, R): dot products with the global vectors."""


def means_kernel(bank: Bank, kernel: Kernel | None = None) -> MeansKernel | None:
    """The search kernel, if it can return the means for this bank; otherwise None."""
    kernel = kernel or choose_kernel()
    return kernel if isinstance(kernel, MeansKernel) and bank.precision != "int8" else None


class ProbeMeans:
    """Means of probes over a gallery; those at the taus in `kept` are cached."""

    def __init__(self, bank: Bank, kernel: MeansKernel, kept: Collection[float] = ()) -> None:
        self._bank, self._kernel, self.kept = bank, kernel, frozenset(kept)
        self.rows, self.back = distinct(bank.rows, bank.row_count)
        self._known: dict[tuple[float, bytes], Float32] = {}  # each (R,)

    def of(self, probes: Float32, taus: Sequence[float], keep: Collection[float] = ()) -> Float32:
        """(P, d) -> (T, P, N), in gallery order. Means at the taus in `keep` are computed too, and cached."""
        every = (*taus, *(tau for tau in sorted(keep) if tau not in taus))
        found = self._kernel.means(probes, every, self._bank, self.rows)
        for number, tau in enumerate(every):
            if tau in keep:
                self._remember(probes, tau, np.array(found[number]))  # a copy, so that the other taus can be freed
        asked = found[: len(taus)]
        return asked if self.back is None else np.ascontiguousarray(asked[..., self.back])

    def each(self, probes: Float32, tau: float) -> list[Float32]:
        """(R,) per probe, in the order of `rows`. Only uncached ones are computed."""
        keys = [(tau, probe.tobytes()) for probe in np.ascontiguousarray(probes, np.float32)]
        missing = {key: place for place, key in enumerate(keys) if key not in self._known}
        if missing:
            new = np.asarray(probes, np.float32)[list(missing.values())]
            self._remember(new, tau, self._kernel.means(new, (tau,), self._bank, self.rows)[0])
        return [self._known[key] for key in keys]

    def dots(self, targets: Float32) -> Float32:
        """(Q, R)"""
        return self._kernel.dots(targets, self._bank, self.rows)

    def _remember(self, probes: Float32, tau: float, means: Float32) -> None:
        plain = np.ascontiguousarray(probes, np.float32)
        self._known.update({(tau, probe.tobytes()): mean for probe, mean in zip(plain, means, strict=True)})


def score_shared(
    queries: Sequence[CompiledQuery], bank: Bank, kernel: Kernel | None = None, known: ProbeMeans | None = None
) -> Float32:
    """Like score_many, with the same bits; faster if many probes are equal or cached."""
    kernel = kernel or choose_kernel()
    check(queries, bank)
    able = means_kernel(bank, kernel)
    tau = queries[0].tau if queries else 0.0
    if able is None or any(query.tau != tau for query in queries):
        return score_many(queries, bank, kernel)
    known = known or _means_worth_sharing(queries, bank, able)
    if known is None:
        return score_many(queries, bank, kernel)
    used = [np.flatnonzero(query.weights) for query in queries]  # probes of weight 0 are skipped
    means = iter(
        known.each(np.concatenate([query.probes[kept] for query, kept in zip(queries, used, strict=True)]), tau)
    )
    dots = known.dots(np.stack([query.target for query in queries]))  # (Q, R)
    scores = np.empty(dots.shape, np.float32)
    for number, query in enumerate(queries):
        total = np.float64(np.float32(query.target_weight)) * dots[number].astype(np.float64)
        for weight in np.asarray(query.weights, np.float32)[used[number]]:
            total += np.float64(weight) * next(means).astype(np.float64)
        scores[number] = total
    refuse_odd_scores(scores)
    return np.asarray(scores if known.back is None else scores[:, known.back], np.float32)


def _means_worth_sharing(queries: Sequence[CompiledQuery], bank: Bank, kernel: MeansKernel) -> ProbeMeans | None:
    """Return an empty cache of means; None where plain scoring is as fast, or the means would not fit in memory."""
    every = [probe.tobytes() for query in queries for probe in np.ascontiguousarray(query.probes, np.float32)]
    few = len(set(every))
    means = ProbeMeans(bank, kernel)
    read = bank.row_count if means.rows is None else len(means.rows)
    return None if few > _WORTH * len(every) or 4 * few * read > _BYTES else means
