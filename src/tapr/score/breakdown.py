"""Score breakdowns of a few pictures. Their bits do not depend on other pictures or on the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.score.definition import products, term_scores
from tapr.store.block import Block
from tapr.types import Float64


@dataclass(frozen=True, eq=False)
class Breakdown:
    """What each term adds to a picture's score, and the term's best cosine with a local vector of the picture."""

    values: Float64  # (k, terms); rows sum to the score by the definition
    peaks: Float64  # (k, terms); NaN for terms without local evidence

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> Breakdown:
        return Breakdown(self.values[places], self.peaks[places])

    @classmethod
    def join(cls, several: Sequence[Breakdown]) -> Breakdown:
        return cls(np.concatenate([one.values for one in several]), np.concatenate([one.peaks for one in several]))


def breakdown_of(query: CompiledQuery, block: Block) -> Breakdown:
    local_vectors = block.decoded()
    peaks = np.full((len(block), len(query.terms)), np.nan)
    placed = [i for i, term in enumerate(query.terms) if term.reads == "local" and term.from_words]
    if placed:
        probes = query.probes[[query.terms[i].start for i in placed]]
        peaks[:, placed] = products(probes, local_vectors).max(axis=-1)
    return Breakdown(term_scores(query, block.global_vectors, local_vectors), peaks)
