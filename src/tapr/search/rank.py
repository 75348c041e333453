"""The second half of a search, from the spec on: compile, match, explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.query.crop import kept_evidence, said
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.scoring import DEFAULT_SCORING, Scoring
from tapr.query.single_modality import PICTURE
from tapr.query.spec import EditSpec, Weights
from tapr.result import Contribution, Hit, Ranking
from tapr.score.breakdown import Breakdown, breakdown_of
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.search.near_duplicates import checked_near_duplicates, first_near_duplicates
from tapr.search.reference_weight import Decision, decide
from tapr.search.topk import TopK, top_k
from tapr.store.catalog import Entry
from tapr.utils.arguments import count
from tapr.utils.clock import Clock

Matcher = Callable[[CompiledQuery, Gallery, int], TopK]  # query, bank, k
MAX_REFERENCES = 3
_BATCH = 128  # pictures explained at a time: their vectors are widened to float64


def rank(
    gallery: Gallery,
    reference: Reference | Sequence[Reference] | None,
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
    near_duplicates: float | None = None,
    matcher: Matcher = top_k,
) -> Ranking:
    """Rank by a spec. This is repeated when a person changes a factor.

    Without a reference the words decide alone, and nothing has to be decided about what stays. `offset` leaves out so
    many of the best, `threshold` every score below it; without `explain` a hit has the kernel's score and no parts.
    `near_duplicates` marks hits that are alike to a better one by at least this cosine; it takes none away.
    """
    k = count(k, "k")
    references = several(reference)
    if near_duplicates is not None:
        near_duplicates = checked_near_duplicates(near_duplicates, min(offset + k, len(gallery)))
    clock = Clock()
    encoder, spec = gallery.encoder, factorization.spec
    encoded = EncodedSpec.of(spec, [kept_evidence(one, encoder.card) for one in references], encoder)
    (decided,) = decide(scoring, [spec], encoded.target[None], gallery) if references else (Decision(None),)
    query = encoded.compile(weights, tau, decided.continuity)
    clock.lap("compile")

    left_out = references if exclude_reference else ()
    excluded = {int(position) for one in left_out for position in gallery.positions_of(one.sha256)}
    searched = len(gallery) - len(excluded)
    wanted = min(offset + k + len(excluded), len(gallery)) if offset < searched else 0
    best = matcher(query, gallery, wanted) if wanted else None
    found = [place for place, position in enumerate(best.positions) if int(position) not in excluded] if best else []
    ranked = best.positions[found[: offset + k]].tolist() if best else []
    found = found[offset : offset + k]
    positions = ranked[offset:]
    clock.lap("match")

    if explain:
        known = best.breakdown if best else None
        breakdown = known.take(found) if known and found and found[-1] < len(known) else None
        hits = explain_hits(query, gallery, positions, offset + 1, breakdown)
    else:
        hits = plain_hits(gallery, positions, best.scores[found].tolist() if best else [], offset + 1)
    if near_duplicates is not None:
        hits = marked(hits, gallery, ranked, near_duplicates)
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
        notes=(
            *nothing,
            *factorization.notes,
            *said(references, encoder.card, words=factorization.factorizer != PICTURE),
            *decided.notes,
            *(best.notes if best else ()),
            *_unread(spec, encoder),
        ),
        seconds=clock.laps,
        query=query,
        reference=references[0] if references else None,
        references=references,
        gallery=gallery,
        rescored=best.rescored if best else None,
        proof=best.proof if best else None,
        scoring=scoring,
        reference_weight=None if decided.continuity is None else decided.continuity.reference_weight,
        reference_weight_notes=decided.notes,
    )


def several(reference: Reference | Sequence[Reference] | None) -> tuple[Reference, ...]:
    """None, one or several references, as many as may be."""
    references = (reference,) if isinstance(reference, Reference) else tuple(reference or ())
    if len(references) > MAX_REFERENCES:
        raise BadInput(f"a search takes up to {MAX_REFERENCES} references, not {len(references)}")
    return references


def marked(hits: tuple[Hit, ...], gallery: Gallery, ranked: list[int], cosine: float) -> tuple[Hit, ...]:
    """Hits that say which better one they are alike to; `ranked` are all positions from the best to the last hit."""
    if not ranked:
        return hits
    place = {hit.id: len(ranked) + number for number, hit in enumerate(hits)}  # as the hits are shown, not as found
    found = sorted(enumerate(gallery.entries(ranked)), key=lambda one: place.get(one[1].id, one[0]))
    vectors = gallery.gather(gallery.rows[[ranked[number] for number, _ in found]]).global_vectors
    entries = [entry for _, entry in found]
    firsts = first_near_duplicates(vectors, [entry.sha256 for entry in entries], cosine)
    alike = {entry.id: entries[first].id for entry, first in zip(entries, firsts, strict=True) if first is not None}
    return tuple(replace(hit, near_duplicate_of=alike.get(hit.id)) for hit in hits)


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
    return tuple(_hit(rank, entry, score, ()) for rank, (entry, score) in enumerate(found, first))


def explain_hits(
    query: CompiledQuery, gallery: Gallery, positions: list[int], first: int = 1, breakdown: Breakdown | None = None
) -> tuple[Hit, ...]:
    """Scores by the definition, in float64, split into terms; the kernel's order stands but for its rounding.

    `shares` of these positions, where they came with the answer; otherwise they are calculated here.
    """
    if not positions:
        return ()
    if breakdown is None:
        rows = gallery.rows[np.array(positions, np.int64)]
        lots = [gallery.gather(rows[start : start + _BATCH]) for start in range(0, len(rows), _BATCH)]
        breakdown = Breakdown.join([breakdown_of(query, lot) for lot in lots])
    order = sorted(range(len(positions)), key=lambda i: (-breakdown.values[i].sum(), positions[i]))
    entries = gallery.entries(positions)
    hits = []
    for rank, i in enumerate(order, first):
        contributions = tuple(
            Contribution(term.factor, term.text, float(value), None if np.isnan(peak) else float(peak))
            for term, value, peak in zip(query.terms, breakdown.values[i], breakdown.peaks[i], strict=True)
        )
        entry = entries[i]
        score = sum(part.value for part in contributions)
        hits.append(_hit(rank, entry, score, contributions))
    return tuple(hits)


def _hit(rank: int, entry: Entry, score: float, contributions: tuple[Contribution, ...]) -> Hit:
    size = entry.width, entry.height
    return Hit(rank, entry.id, entry.path, score, contributions, entry.metadata, entry.caption or None, *size)


def _unread(spec: EditSpec, encoder: Encoder) -> list[str]:
    notes = []
    for text in spec.phrases:
        unread = encoder.unread(text)
        if unread:
            notes.append(f"{encoder.card.name} reads only the beginning of {text[:40]!r}...; not read: {unread[:80]!r}")
    return notes
