"""The second half of a search, from the spec on: compile, match, explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.arguments import count
from tapr.clock import Clock
from tapr.encoders.base import Encoder
from tapr.factorize.base import Factorization, Reference
from tapr.gallery import Gallery
from tapr.gallery.block import Block
from tapr.match import TopK, top_k
from tapr.ranking import Contribution, Hit, Ranking
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.score.definition import term_scores
from tapr.score.factors import BY_NAME
from tapr.spec import EditSpec, Weights
from tapr.stay import DEFAULT_SCORING, Decision, Scoring

Matcher = Callable[[CompiledQuery, Gallery, int], TopK]  # query, bank, k
_LOT = 128  # pictures explained at a time: their vectors are widened to float64


def rank(
    gallery: Gallery,
    reference: Reference | None,
    factorization: Factorization,
    k: int,
    *,
    weights: Weights | None = None,
    tau: float = TAU,
    scoring: Scoring = DEFAULT_SCORING,
    exclude_reference: bool = True,
    offset: int = 0,
    threshold: float | None = None,
    explain: bool = True,
    matcher: Matcher = top_k,
) -> Ranking:
    """Rank by a spec. This is repeated when a person changes a factor.

    Without a reference the words decide alone, and nothing has to be decided about what stays. `offset` leaves out so
    many of the best, `threshold` every score below it; without `explain` a hit has the kernel's score and no parts.
    """
    k = count(k, "k")
    clock = Clock()
    encoder, spec = gallery.encoder, factorization.spec
    encoded = EncodedSpec.of(spec, reference.evidence if reference else None, encoder)
    (decided,) = scoring.decide([spec], encoded.target[None], gallery) if reference else (Decision(None),)
    query = encoded.compile(weights, tau, decided.continuity)
    clock.lap("compile")

    excluded = set(gallery.positions_of(reference.sha256).tolist()) if reference and exclude_reference else set()
    searched = len(gallery) - len(excluded)
    wanted = min(offset + k + len(excluded), len(gallery)) if offset < searched else 0
    best = matcher(query, gallery, wanted) if wanted else None
    found = [place for place, position in enumerate(best.positions) if int(position) not in excluded] if best else []
    found = found[offset : offset + k]
    positions = best.positions[found].tolist() if best else []
    clock.lap("match")

    if explain:
        hits = explain_hits(query, gallery, positions, offset + 1)
    else:
        hits = plain_hits(gallery, positions, best.scores[found].tolist() if best else [], offset + 1)
    highest = hits[0].score if hits else None
    hits = tuple(hit for hit in hits if threshold is None or hit.score >= threshold)
    nothing = (
        ()
        if hits or (best and not len(best.positions))
        else (why_nothing(gallery, searched, offset, threshold, highest),)
    )
    clock.lap("explain")
    return Ranking(
        hits=hits,
        spec=spec,
        factorizer=factorization.factorizer,
        encoder=gallery.card.name,
        extractor=gallery.card.extractor,
        kernel=best.kernel if best else "none: there was nothing to match",
        searched=searched,
        notes=(*nothing, *factorization.notes, *decided.notes, *(best.notes if best else ()), *_unread(spec, encoder)),
        seconds=clock.laps,
        query=query,
        reference=reference,
        gallery=gallery,
        rescored=best.rescored if best else None,
        proof=best.proof if best else None,
        scoring=scoring,
        stay=None if decided.continuity is None else decided.continuity.stay,
        stay_notes=decided.notes,
    )


def why_nothing(gallery: Gallery, searched: int, offset: int, threshold: float | None, highest: float | None) -> str:
    """An empty answer says why it is empty."""
    if highest is not None:
        return f"nothing was found: no score here reaches the threshold {threshold:g}; the best is {highest:.4f}"
    if offset and searched:
        return f"nothing was found: offset {offset} leaves out all of the {searched:,} pictures"
    if len(gallery):
        return "nothing was found: the reference is the only picture searched, and it is left out of the answer"
    if gallery.condition:
        return f"nothing was found: no picture of the gallery meets the filter {gallery.condition[:200]!r}"
    return "nothing was found: the gallery has no pictures"


def plain_hits(gallery: Gallery, positions: list[int], scores: list[float], first: int) -> tuple[Hit, ...]:
    """Hits with the kernel's scores and without parts."""
    found = zip(gallery.entries(positions), scores, strict=True)
    return tuple(
        Hit(rank, entry.id, entry.path, score, (), entry.metadata, entry.caption or None)
        for rank, (entry, score) in enumerate(found, first)
    )


def explain_hits(query: CompiledQuery, gallery: Gallery, positions: list[int], first: int = 1) -> tuple[Hit, ...]:
    """Scores by the definition, in float64, split into terms; the kernel's order stands but for its rounding."""
    if not positions:
        return ()
    rows = gallery.rows[np.array(positions, np.int64)]
    lots = [_parts(query, gallery.gather(rows[start : start + _LOT])) for start in range(0, len(rows), _LOT)]
    parts, peaks = (np.concatenate(pieces) for pieces in zip(*lots, strict=True))  # both (k, terms)
    order = sorted(range(len(positions)), key=lambda i: (-parts[i].sum(), positions[i]))
    entries = gallery.entries(positions)
    hits = []
    for rank, i in enumerate(order, first):
        contributions = tuple(
            Contribution(term.factor, term.text, float(value), None if np.isnan(peak) else float(peak))
            for term, value, peak in zip(query.terms, parts[i], peaks[i], strict=True)
        )
        entry = entries[i]
        score = sum(part.value for part in contributions)
        hits.append(Hit(rank, entry.id, entry.path, score, contributions, entry.metadata, entry.caption or None))
    return tuple(hits)


def _parts(query: CompiledQuery, block: Block) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of each picture (k) what each term adds to its score, and the term's best cosine with a place in the picture;
    NaN for what is no phrase with a place. Both (k, terms).
    """
    local_vectors = block.decoded()
    peaks = np.full((len(block), len(query.terms)), np.nan)
    placed = [i for i, term in enumerate(query.terms) if term.reads == "local" and BY_NAME[term.factor].from_words]
    probes = query.probes[[query.terms[i].start for i in placed]]
    peaks[:, placed] = np.einsum("nd,kmd->knm", probes, local_vectors.astype(np.float32)).max(axis=-1)
    return term_scores(query, block.global_vectors, local_vectors), peaks


def _unread(spec: EditSpec, encoder: Encoder) -> list[str]:
    notes = []
    for text in spec.phrases:
        unread = encoder.unread(text)
        if unread:
            notes.append(f"{encoder.card.name} reads only the beginning of {text[:40]!r}...; not read: {unread[:80]!r}")
    return notes
