"""Whether a picture shows what an atom names: it must fit the picture better than what contradicts it.

A cosine alone says little: "blue shirt" fits black trousers better than most things do. So an atom's words compete
with their rivals (explain/contests.py). Three things say how sure a win is: the margin, the margin over what each
phrase usually fits in this gallery, and how many rivals fit better. A logistic regression weighs them (LINES). It was
fitted on one half of real galleries and checked on the other: benchmarks/ticks.py, docs/quality.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, unit
from tapr.encoders.centred import PHRASES
from tapr.encoders.centred import SUFFIX as CENTRED
from tapr.explain.contests import Claim, Contest, Kind, claim_of
from tapr.factorize.tags import vocabulary, vocabulary_vectors
from tapr.gallery import Gallery
from tapr.result import Found
from tapr.types import Float32
from tapr.utils.weak_cache import cached_for

_WORDS: tuple[Found, ...] = ("not found", "maybe", "found")
TEMPERATURE = 0.02  # of the rivals together: many that fit nearly as well count more than one
CENTRING = 0.5  # how much of what all phrases share is taken out of their vectors
_PICTURES, _PHRASES = 64, 64  # the sample of the colour scale: most pairs have nothing to do with each other
SHARES = (0.5, 0.95)  # of such pairs that peak below zero and below the outline's scale
_FEW = 16  # pictures: a gallery of so many says half of what phrases usually fit
_MOST_PHRASES = 4096  # whose vectors are kept per encoder: 8 MB at d = 512


@dataclass(frozen=True)
class Line:
    """How sure a claim of one kind is, as log-odds, and how sure it must be."""

    margin: float
    over_usual: float
    better_rivals: float  # per log(1 + their number)
    constant: float
    maybe: float
    found: float  # infinite: this kind is wrong too often to be ticked
    of_thing: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # the same of the thing that has it; a constant

    def __call__(self, won: Won, thing: Won | None = None) -> NDArray[np.float64]:
        odds = won.weighed(self.margin, self.over_usual, self.better_rivals) + self.constant
        return odds if thing is None else odds + thing.weighed(*self.of_thing[:3]) + self.of_thing[3]


LINES: Mapping[Kind, Line] = {  # from benchmarks/ticks.py --choose
    "object": Line(13.42, 0.53, -0.75, 0.76, maybe=-1.87, found=0.44),
    "person": Line(14.57, 14.20, 0.02, 0.71, maybe=-1.34, found=0.20),
    "colour": Line(6.38, 10.16, -1.19, 0.44, maybe=-1.26, found=0.50, of_thing=(6.01, 2.06, -0.90, -0.49)),
    "material": Line(1.0, 0.0, 0.0, 0.0, maybe=-0.045, found=math.inf),
}


@dataclass(frozen=True, eq=False)
class Won:
    """How a phrase did against its rivals in each picture, (K,) each."""

    margin: NDArray[np.float64]  # above 0 it beats them all together
    over_usual: NDArray[np.float64]  # the same after what each phrase usually fits in the gallery is taken off
    better_rivals: NDArray[np.float64]  # log(1 + their number)

    def weighed(self, margin: float, over_usual: float, better_rivals: float) -> NDArray[np.float64]:
        return margin * self.margin + over_usual * self.over_usual + better_rivals * self.better_rivals


@dataclass(frozen=True, eq=False)
class Pictures:
    """The vectors of K pictures: (K, d) and (K, M, d)."""

    global_vectors: NDArray[Any]
    local_vectors: NDArray[Any]

    @classmethod
    def of(cls, gallery: Gallery, ids: Sequence[str]) -> Pictures:
        entries = [gallery.find(id_) for id_ in ids]
        block = gallery.gather(np.array([entry.row for entry in entries if entry is not None], np.int64))
        return cls(block.global_vectors, block.decoded())


def words_of(
    atoms: Sequence[str], pictures: Pictures, encoder: Encoder, gallery: Gallery | None = None
) -> list[list[Found | None]]:
    """(atoms, K): None where an atom claims nothing that can be checked. `gallery`: the one that they are from."""
    claims = [claim_of(atom) for atom in atoms]
    contests = [contest for claim in claims for contest in claim.contests]
    phrases = list(dict.fromkeys(phrase for contest in contests for phrase in (contest.phrase, *contest.rivals)))
    fits = dict(zip(phrases, fit(phrases, pictures, encoder), strict=True)) if phrases else {}
    usual = usual_fits(phrases, gallery) if gallery is not None else {}
    return [judged(claim, fits, len(pictures.global_vectors), usual) for claim in claims]


def judged(
    claim: Claim, fits: Mapping[str, NDArray[np.float64]], count: int, usual: Mapping[str, float] | None = None
) -> list[Found | None]:
    """Each of its words must be right; what is not whole is found "maybe" at best. `fits`: of phrases, (K,) each."""
    if not claim.contests:
        return [None] * count
    levels = np.full(count, 2 if claim.whole else 1)
    for kind, odds in odds_of(claim, fits, usual).items():
        levels = np.minimum(levels, (odds >= LINES[kind].maybe).astype(int) + (odds >= LINES[kind].found))
    return [_WORDS[level] for level in levels]


def odds_of(
    claim: Claim, fits: Mapping[str, NDArray[np.float64]], usual: Mapping[str, float] | None = None
) -> dict[Kind, NDArray[np.float64]]:
    """The log-odds of each kind of claim that the atom makes; a colour's say that the thing is right as well."""
    won = {contest.kind: contested(contest, fits, usual or {}) for contest in claim.contests}
    thing = won.get("object") if "colour" in won and any(LINES["colour"].of_thing) else None
    judged_with_colour = {"object"} if thing is not None else set()
    return {
        kind: LINES[kind](one, thing if kind == "colour" else None)
        for kind, one in won.items()
        if kind not in judged_with_colour
    }


def contested(contest: Contest, fits: Mapping[str, NDArray[np.float64]], usual: Mapping[str, float]) -> Won:
    """`usual`: what a phrase fits on average in the gallery; the same for all where that is not known."""
    phrases = (contest.phrase, *contest.rivals)
    own = np.stack([fits[phrase] for phrase in phrases])
    over = own - np.array([[usual.get(phrase, 0.0)] for phrase in phrases])
    better = np.log1p((own[1:] > own[0]).sum(axis=0))
    return Won(_margin(own), _margin(over), better)


def _margin(fits: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much the first fits each picture better than the others together: (phrases, K) -> (K,)."""
    rivals = fits[1:] / TEMPERATURE
    top = rivals.max(axis=0)
    return np.asarray(fits[0] - TEMPERATURE * (top + np.log(np.exp(rivals - top).sum(axis=0))))


def usual_fits(phrases: Sequence[str], gallery: Gallery) -> dict[str, float]:
    """How well each phrase fits the pictures of a gallery on average, from a sample; each is computed once.

    Of few pictures little can be said: then it is nearly the same for all phrases.
    """
    known: dict[str, float] = cached_for(gallery.stored, "what phrases usually fit", dict)
    new = [phrase for phrase in phrases if phrase not in known]
    if not new or not gallery.row_count:
        return known
    sample = cached_for(gallery.stored, "sample for what phrases usually fit", lambda: _sample(gallery))
    means = fit(new, sample, gallery.encoder).mean(axis=1)
    share = gallery.row_count / (gallery.row_count + _FEW)
    if len(known) > _MOST_PHRASES:
        known.clear()
        return usual_fits(phrases, gallery)
    known.update(zip(new, (share * means).tolist(), strict=True))
    return known


def _sample(gallery: Gallery) -> Pictures:
    """Pictures evenly spaced over the rows."""
    rows = np.unique(np.linspace(0, gallery.row_count - 1, _PICTURES).astype(np.int64))
    block = gallery.gather(rows)
    return Pictures(block.global_vectors, block.decoded())


def fit(phrases: Sequence[str], pictures: Pictures, encoder: Encoder) -> NDArray[np.float64]:
    """How well each phrase fits each picture, (phrases, K): its cosine with the whole plus its best with a place."""
    whole, places = phrase_vectors(phrases, encoder)
    count, locals_count, dim = pictures.local_vectors.shape
    near = pictures.local_vectors.astype(np.float32).reshape(-1, dim) @ places.T  # one product: the largest part by far
    peaks = near.reshape(count, locals_count, -1).max(axis=1)
    return np.asarray((pictures.global_vectors.astype(np.float32) @ whole.T + peaks).T, np.float64)


def phrase_vectors(phrases: Sequence[str], encoder: Encoder) -> tuple[Float32, Float32]:
    """(phrases, d) for global vectors and for local ones; each phrase is encoded once per encoder."""
    mean = rivals_of_things(encoder)[1]
    whole = unit(_encoded(phrases, encoder) - CENTRING * mean)
    if not encoder.card.extractor.endswith(CENTRED):
        return whole, whole
    known: dict[str, Float32] = cached_for(encoder, "atoms of contests", dict)
    return whole, _kept(phrases, known, encoder.encode_atoms)


def _encoded(phrases: Sequence[str], encoder: Encoder) -> Float32:
    known: dict[str, Float32] = cached_for(encoder, "phrases of contests", dict)
    if not known:
        known.update(zip(vocabulary().phrases, rivals_of_things(encoder)[0], strict=True))
    return _kept(phrases, known, encoder.encode_texts)


def _kept(phrases: Sequence[str], known: dict[str, Float32], encode: Any) -> Float32:
    new = [phrase for phrase in phrases if phrase not in known]
    if new:
        known.update(zip(new, encode(new), strict=True))
    vectors = np.stack([known[phrase] for phrase in phrases])
    if len(known) > _MOST_PHRASES:
        known.clear()
    return vectors


def rivals_of_things(encoder: Encoder) -> tuple[Float32, Float32]:
    """The vectors of the whole vocabulary and their mean: what every thing competes with. Made once per encoder."""
    return cached_for(encoder, "vectors of the vocabulary", lambda: vocabulary_vectors(encoder))


@dataclass(frozen=True)
class Scale:
    """The scale on which heat maps show the cosines of a phrase with places: per encoder and gallery."""

    zero: float  # as much as half of all unrelated pairs of phrase and picture reach somewhere
    sure: float  # 19 of 20 stay below it

    @classmethod
    def of(cls, gallery: Gallery) -> Scale:
        """From a sample: pictures evenly spaced over the rows, everyday phrases from a fixed list."""

        def measure() -> Scale:
            if not gallery.row_count:
                return cls(0.0, 0.0)
            peaks = peaks_of_everyday_phrases(gallery.encoder, _sample(gallery).local_vectors)
            return cls(*(float(level) for level in np.quantile(peaks, SHARES)))

        return cached_for(gallery.stored, "scale of heat maps", measure)

    @property
    def full(self) -> float:
        """Where the colour is strongest; above `sure` by half as much again as `sure` is above zero."""
        return self.zero + 2.5 * max(self.sure - self.zero, 1e-6)

    def strength(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        """0 (what is found everywhere) to 1, of any shape."""
        return np.clip((np.asarray(cosines, np.float64) - self.zero) / (self.full - self.zero), 0.0, 1.0)


def peaks_of_everyday_phrases(encoder: Encoder, local_vectors: NDArray[Any]) -> NDArray[np.float32]:
    """The best cosine of each of a fixed list of phrases with a place of each picture: (R, M, d) -> (n, R)."""
    phrases = PHRASES.read_text(encoding="utf-8").splitlines()
    probes = encoder.encode_atoms(phrases[:: len(phrases) // _PHRASES][:_PHRASES])  # (n, d)
    count, locals_count, dim = local_vectors.shape
    # one product: many small ones, each on several threads, take many times as long where processors are busy
    near = local_vectors.astype(np.float32).reshape(-1, dim) @ probes.T
    return np.asarray(near.reshape(count, locals_count, -1).max(axis=1).T)
