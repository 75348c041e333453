"""Turns scores into what a protocol needs: ranks of right answers, top lists, and rankings within a subset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.evaluate.datasets.base import Part, Query
from tapr.evaluate.metrics import AnswerRanks, answer_ranks, ranks_in_scores
from tapr.search.kernels.choose import gpu_in_use
from tapr.search.kernels.exact import TERM_STEP, weighted_sums, weights_on_grid

_WORTH_GPU = 1 << 24  # multiplications from which the GPU is faster
TOP = 50  # length of a stored ranking: benchmark servers ask for 50


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """One query's right answers, as gallery positions."""

    references: tuple[int, ...]  # those that are in the gallery
    right: NDArray[np.int64]
    subset: NDArray[np.int64] | None  # without the reference
    keep_reference: bool

    def ranks(self, scores: NDArray[Any], keep_reference: bool | None = None) -> tuple[AnswerRanks, ...]:
        """Scores (V, N) -> the ranks of the right answers, per row."""
        return tuple(ranks_in_scores(self._ranked(scores, keep_reference), self.right, self.subset))

    def ranks_by_weights(
        self, weights: NDArray[Any], terms: NDArray[Any], keep_reference: bool | None = None
    ) -> tuple[AnswerRanks, ...]:
        """`ranks` of the weighted sums of terms, (V, T) times (T, N); computed on a GPU if there is one and it is worth
        it.
        """
        gpu = gpu_in_use() if len(weights) * terms.size > _WORTH_GPU else None
        if gpu is None or len(self.references) > 1:
            return self.ranks(weighted_sums(weights, terms), keep_reference)
        from tapr.search.kernels import gpu_exact

        left_out = None if self._keeps(keep_reference) else self.references[0]
        ranks, inside = gpu_exact.ranks(
            weights_on_grid(weights), terms, TERM_STEP, self.right, self.subset, left_out, gpu.device
        )
        return tuple(answer_ranks(ranks, inside))

    def top(self, scores: NDArray[Any], k: int = TOP) -> list[int]:
        """Scores (N,) -> positions of the k best. Equal scores keep gallery order."""
        ranked = self._ranked(scores[None], None)[0]
        found = min(k, int((~np.isneginf(ranked)).sum()))
        # include everything that ties with the k-th
        least = np.partition(ranked, len(ranked) - found)[len(ranked) - found]
        candidates = np.flatnonzero(ranked >= least)
        return [int(position) for position in candidates[np.argsort(-ranked[candidates], kind="stable")][:found]]

    def top_of_subset(self, scores: NDArray[Any]) -> list[int]:
        assert self.subset is not None
        return [int(position) for position in self.subset[np.argsort(-scores[self.subset], kind="stable")]]

    def _keeps(self, keep_reference: bool | None) -> bool:
        keep = self.keep_reference if keep_reference is None else keep_reference
        return keep or not self.references

    def _ranked(self, scores: NDArray[Any], keep_reference: bool | None) -> NDArray[Any]:
        if self._keeps(keep_reference):
            return scores
        ranked = np.array(scores)
        ranked[:, list(self.references)] = -np.inf
        return ranked


def ground_truths(part: Part, queries: Sequence[Query], keep_reference: bool) -> list[GroundTruth]:
    position = {name: place for place, name in enumerate(part.gallery)}
    made = []
    for query in queries:
        # in gallery order, so that ties break as in the whole ranking
        members = sorted(position[name] for name in query.subset if name not in query.references)
        made.append(
            GroundTruth(
                tuple(position[name] for name in query.references if name in position),
                np.array([position[name] for name in query.right], np.int64),
                np.array(members, np.int64) if query.subset else None,
                keep_reference,
            )
        )
    return made
