"""How much of the reference stays: the paper's reading, a fixed weight, or a rule that reads the gallery."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.query.edit_kinds import EDIT_KINDS, UNSURE_WEIGHT
from tapr.query.scoring import Scoring
from tapr.query.spec import EditSpec
from tapr.score.compile import CompiledQuery, Continuity
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.sweep import score_many
from tapr.search.topk import RemoteBank
from tapr.types import Float32

MAX_REFERENCE_WEIGHT = 0.85  # what the picture weighs beside the words where the words fit every picture alike
TEMPERATURE = 0.02  # of the softmax over the gallery that says how many pictures the words fit
_BINS = 1 << 15  # of a cosine from -1 to 1: far finer than the temperature


@dataclass(frozen=True)
class Decision:
    """How much of the reference stays for one query, and the notes that say why."""

    continuity: Continuity | None  # None: as the paper weighs it
    notes: tuple[str, ...] = ()


def decide(
    scoring: Scoring, specs: Sequence[EditSpec], targets: Float32, bank: Bank, kernel: Kernel | None = None
) -> list[Decision]:
    """One decision per spec; `targets` (Q, d) are the vectors of their sentences."""
    if scoring.rule == "paper":
        ignored = "the paper's score takes no notice of the spec's continuity"
        return [Decision(None, () if spec.continuity is None else (ignored,)) for spec in specs]
    decided = [_given(scoring, spec) for spec in specs]
    open_ = [place for place, one in enumerate(decided) if one is None]
    if scoring.rule == "adaptive" and open_ and len(bank):
        fitting = pictures_that_fit(targets[open_], bank, kernel)
        for place, count in zip(open_, fitting, strict=True):
            decided[place] = _by_words(scoring, count, len(bank))
    return [one or _by_kind(scoring, spec) for one, spec in zip(decided, specs, strict=True)]


def _given(scoring: Scoring, spec: EditSpec) -> Decision | None:
    if scoring.reference_weight is not None:
        return Decision(Continuity(scoring.reference_weight, scoring.reference_features))
    if spec.continuity is None:
        return None
    note = ("nothing of the reference stays: the words decide alone",) if spec.continuity == 0 else ()
    return Decision(Continuity(spec.continuity, scoring.reference_features), note)


def _by_kind(scoring: Scoring, spec: EditSpec) -> Decision:
    """The table's weight for this kind of edit; the middle where the kind is not known."""
    if spec.kind is None:
        return Decision(Continuity(UNSURE_WEIGHT, scoring.reference_features))
    kind = EDIT_KINDS[spec.kind]
    said = f"{_balance(kind.reference_weight)}: {kind.says}"
    return Decision(Continuity(kind.reference_weight, scoring.reference_features), (said,))


def _balance(reference_weight: float) -> str:
    if reference_weight < UNSURE_WEIGHT - 0.05:
        return "More of the words"
    return "Balanced" if reference_weight <= UNSURE_WEIGHT + 0.05 else "More of the picture"


def _by_words(scoring: Scoring, fitting: float, pictures: int) -> Decision:
    reference_weight = reference_weight_for(fitting, pictures)
    who = "the words decide" if reference_weight < UNSURE_WEIGHT else "the reference decides among them"
    count = max(1, round(fitting))
    noun = "pictures" if count > 1 else "picture"
    fit = f"the words fit about {count:,} {noun} of {pictures:,}: {who} (stay {reference_weight:.2f})"
    return Decision(Continuity(reference_weight, scoring.reference_features), (fit,))


def reference_weight_for(fitting: float, pictures: int) -> float:
    """Few pictures fit the words: trust the words. Many fit: the picture decides among them.

    By ln(fitting) / ln(pictures), which hardly depends on the size of a gallery; ln(fitting) alone does.
    """
    weight = MAX_REFERENCE_WEIGHT * (math.log(max(fitting, 1.0)) / math.log(pictures) if pictures > 1 else 1.0)
    return weight / (1 + weight)


def pictures_that_fit(targets: Float32, bank: Bank, kernel: Kernel | None = None) -> NDArray[np.float64]:
    """(Q, d) -> (Q,): exp of the entropy of softmax(similarity / TEMPERATURE) over the gallery.

    From counts of similarities, which are whole numbers and merge over blocks, batches and shards without rounding.
    """
    counted = bank.histograms(targets) if isinstance(bank, RemoteBank) else histograms(targets, bank, kernel)
    return np.array([fitting(counts) for counts in counted])


def histograms(targets: Float32, bank: Bank, kernel: Kernel | None = None) -> list[NDArray[np.int64]]:
    """(Q, d) -> Q times (_BINS,): how many pictures have which similarity with each target."""
    none = np.zeros((0, targets.shape[1]), np.float32)
    one = np.ones(1, np.float32)
    queries = [CompiledQuery(target[None], one, none, none[:, 0], ()) for target in targets]
    return [histogram(scores) for scores in score_many(queries, bank, kernel)]


def histogram(similarities: Float32) -> NDArray[np.int64]:
    """(N,) -> (_BINS,) how many pictures have which similarity."""
    places = np.floor((similarities.astype(np.float64) + 1) * (_BINS / 2)).astype(np.int64)
    return np.bincount(np.clip(places, 0, _BINS - 1), minlength=_BINS)


def fitting(counts: NDArray[np.int64]) -> float:
    """How many pictures the words fit, from their histogram."""
    (filled,) = np.nonzero(counts)
    heights = (filled - filled[-1]) * (2 / _BINS / TEMPERATURE)  # log of the softmax, up to a constant
    masses = counts[filled] * np.exp(heights)
    total = math.fsum(masses)
    return math.exp(math.log(total) - math.fsum(masses * heights) / total)
