"""Merges the answers of groups into exactly the answer of a single machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from tapr.result import Proof
from tapr.score.breakdown import Breakdown
from tapr.search.topk import Positions, TopK
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class GroupResult:
    """The best pictures of one group for one query. Positions refer to the gallery or to the searched view."""

    positions: Positions  # (k,)
    scores: Float32  # (k,)
    radii: Float32 | None  # (k,), as in TopK
    rescored: int | None
    proof: Proof | None = None
    breakdown: Breakdown | None = None  # breakdown of the first of them


def merge(
    found: Sequence[GroupResult],
    k: int,
    kernels: Sequence[str],
    exact: bool,
    remarks: tuple[str, ...] = (),
    missing: int = 0,
) -> TopK:
    """Best first, equal scores in gallery order. Each picture is in exactly one group.

    `exact`: by fp16 vectors. `missing`: stored pictures of groups that did not answer.
    """
    positions = np.concatenate([one.positions for one in found]).astype(np.int64)
    scores = np.concatenate([one.scores for one in found]).astype(np.float32)
    order = np.lexsort((positions, -scores))[:k]
    radii = None
    if not exact:
        radii = np.concatenate([_radii(one) for one in found])[order]
    read = [one.rescored for one in found if one.rescored is not None]
    names = sorted(set(kernels))
    if len(names) > 1:
        remarks = (
            *remarks,
            f"nodes ran different kernels ({', '.join(names)}), whose scores can differ in the last bits: "
            "tapr cluster start --kernel NAME holds them to one",
        )
    groups = f"{len(found)} shard group{'s' if len(found) != 1 else ''}"
    proof = merged_proof([one.proof for one in found], missing)
    exact = exact and (proof is None or proof.proven)
    return TopK(
        positions[order], scores[order], f"{' and '.join(names)} on {groups}", exact, sum(read) if read else None,
        radii, remarks, _breakdown(found, order), proof,
    )  # fmt: skip


def shares_of(most: int, pictures: Sequence[int]) -> list[int]:
    """Return how many of `most` pictures each part may read: in proportion to its own, and `most` in all."""
    ends = [0, *accumulate(pictures)]
    cuts = [most * end // ends[-1] for end in ends]
    return [stop - start for start, stop in pairwise(cuts)]


def merged_proof(several: Sequence[Proof | None], missing: int) -> Proof | None:
    """Of the whole gallery: what was not searched is not ruled out. None without a first stage."""
    proofs = [one for one in several if one is not None]
    if len(proofs) < len(several):
        return None
    return Proof(
        sum(one.read for one in proofs),
        sum(one.open for one in proofs) + missing,
        sum(one.pictures for one in proofs) + missing,
    )


def _breakdown(found: Sequence[GroupResult], order: NDArray[np.int64]) -> Breakdown | None:
    """Breakdowns of the leading hits, up to the first hit whose group did not send one."""
    several = [one.breakdown for one in found if one.breakdown is not None]
    if len(several) < len(found):
        return None
    places, begin = [], 0  # index of each hit's breakdown, or -1
    for one, sent in zip(found, several, strict=True):
        number = np.arange(len(one.positions))
        places.append(np.where(number < len(sent), begin + number, -1))
        begin += len(sent)
    wanted = np.concatenate(places)[order]
    (lacking,) = np.nonzero(wanted < 0)
    return Breakdown.join(several).take(wanted[: lacking[0]] if len(lacking) else wanted)


def _radii(found: GroupResult) -> Float32:
    return np.zeros(len(found.scores), np.float32) if found.radii is None else found.radii


@dataclass(frozen=True, eq=False)
class SparseHistogram:
    """A histogram of similarities without its empty bins."""

    bins: NDArray[np.int64]  # (b,)
    counts: NDArray[np.int64]  # (b,)
    size: int

    @classmethod
    def of(cls, histogram: NDArray[np.int64]) -> SparseHistogram:
        (bins,) = np.nonzero(histogram)
        return cls(bins, histogram[bins], len(histogram))


def add(several: Sequence[SparseHistogram]) -> NDArray[np.int64]:
    """The histogram of the whole gallery. Counts are integers, so the sum is exact."""
    total = np.zeros(several[0].size, np.int64)
    for one in several:
        total[one.bins] += one.counts
    return total
