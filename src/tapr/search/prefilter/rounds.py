"""A search by stages of a gallery in parts, in two rounds.

First every part scores its most promising pictures. The k-th best of all of them is a floor for every part: in the
second round each rules out by it what the others' pictures beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from tapr.search.kernels.base import Rows
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows of a part that were read."""

    rows: Rows  # (n,) physical
    scores: Float32  # (n,) exact
    pictures: Rows  # (n,) how many of the searched pictures share each row


@dataclass(frozen=True, eq=False)
class Known:
    """What a part knows of a query in the second round."""

    candidates: Scored  # its own
    floor: float  # k pictures of the gallery reach it; -inf: not known


def floor_of(several: Sequence[Scored], k: int) -> float:
    """The score that the k best of these pictures reach; -inf if they are fewer."""
    scores = np.concatenate([np.repeat(one.scores, one.pictures) for one in several])
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else -np.inf


def shares_of(most: int, pictures: Sequence[int]) -> list[int]:
    """How many of `most` pictures each part may read: in proportion to its own, and `most` in all."""
    ends = [0, *accumulate(pictures)]
    cuts = [most * end // ends[-1] for end in ends]
    return [stop - start for start, stop in pairwise(cuts)]
