"""The second half of a search, from the spec on: compile, match, explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tapr.encoders.base import Encoder
from tapr.errors import BadOption
from tapr.gallery import Gallery
from tapr.options import RankOptions
from tapr.query.crop import kept_evidence, said
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.single_modality import PICTURE, WORDS
from tapr.query.spec import DEFAULT_WEIGHTS, EditSpec
from tapr.result import Contribution, Hit, Ranking, ReferenceInfo, SearchedBy
from tapr.score.breakdown import Breakdown, breakdown_of
from tapr.score.compile import CompiledQuery, EncodedSpec
from tapr.search.feedback import Marked, said_of
from tapr.search.near_duplicates import MAX_PLACES, first_near_duplicates
from tapr.search.reference_weight import Decision, decide
from tapr.search.topk import TopK, top_k
from tapr.store.catalog import Entry
from tapr.utils.amounts import counted
from tapr.utils.clock import Clock

Matcher = Callable[[CompiledQuery, Gallery, int], TopK]  # query, bank, k
_BATCH = 128  # pictures explained at a time: their vectors are widened to float64


def rank(
    gallery: Gallery,
    reference: Reference | Sequence[Reference] | None,
    factorization: Factorization,
    asked: RankOptions | None = None,
    matcher: Matcher = top_k,
    feedback: Sequence[Marked] = (),
) -> Ranking:
    """Rank by a spec. This is repeated when a person changes a factor.

    Without a reference the words decide alone, and nothing has to be decided about what stays. Without `explain` a hit
    has the kernel's score and no parts. `near_duplicates` marks hits that are alike to a better one; all stay.
    """
    asked = asked or RankOptions()
    k, offset = asked.k, asked.offset
    references = (reference,) if isinstance(reference, Reference) else tuple(reference or ())
    if asked.near_duplicates is not None and min(offset + k, len(gallery)) > MAX_PLACES:
        what = f"near_duplicates compares the first {MAX_PLACES:,} places of a ranking: ask for fewer, or without it"
        raise BadOption(what, "near_duplicates")
    clock = Clock()
    encoder, spec = gallery.encoder, factorization.spec
    kept = [kept_evidence(one, encoder.card) for one in references]
    encoded = EncodedSpec.of(spec, kept, encoder, [one.compiled(encoder.card) for one in feedback])
    (decided,) = decide(asked.scoring, [spec], encoded.target[None], gallery) if references else (Decision(None),)
    query = encoded.compile(asked.weights, asked.tau, decided.continuity)
    clock.lap("compile")

    left_out = (*references, *(one.picture for one in feedback)) if asked.exclude_reference else ()
    excluded = {int(position) for one in left_out for position in gallery.positions_of(one.sha256)}
    searched = len(gallery) - len(excluded)
    wanted = min(offset + k + len(excluded), len(gallery)) if offset < searched else 0
    best = matcher(query, gallery, wanted) if wanted else None
    found = [place for place, position in enumerate(best.positions) if int(position) not in excluded] if best else []
    ranked = best.positions[found[: offset + k]].tolist() if best else []
    found = found[offset : offset + k]
    positions = ranked[offset:]
    clock.lap("match")

    if asked.explain:
        known = best.breakdown if best else None
        breakdown = known.take(found) if known and found and found[-1] < len(known) else None
        hits = explain_hits(query, gallery, positions, offset + 1, breakdown)
    else:
        hits = plain_hits(gallery, positions, best.scores[found].tolist() if best else [], offset + 1)
    if asked.near_duplicates is not None:
        hits = marked(hits, gallery, ranked, asked.near_duplicates)
    highest = hits[0].score if hits else None
    hits = tuple(hit for hit in hits if asked.threshold is None or hit.score >= asked.threshold)
    nothing = () if hits else (why_nothing(gallery, searched, offset, asked.threshold, highest),)
    clock.lap("explain")
    weight = None if decided.continuity is None else decided.continuity.reference_weight
    return Ranking(
        hits=hits,
        method=asked.method,
        searched_by=_searched_by(references, weight),
        spec=spec,
        weights=asked.weights or spec.weights or DEFAULT_WEIGHTS,
        reference=ReferenceInfo.of(references[0]) if references else None,
        factorizer=factorization.factorizer,
        encoder=gallery.card.name,
        extractor=gallery.card.extractor,
        kernel=best.kernel if best else "none: there was nothing to match",
        rescored=best.rescored if best else None,
        prefilter=best.proof if best else None,
        score=asked.score,
        tau=query.tau,
        reference_weight=weight,
        reference_weight_notes=decided.notes,
        searched=searched,
        snapshot=gallery.manifest.snapshot or 0,
        notes=(
            *nothing,
            *factorization.notes,
            *said(references, encoder.card, words=factorization.factorizer != PICTURE),
            *said_of(feedback, left_out=asked.exclude_reference),
            *decided.notes,
            *(best.notes if best else ()),
            *_unread(spec, encoder),
        ),
        seconds=clock.laps,
        query=query,
        gallery=gallery,
        references=references,
    )


def _searched_by(references: Sequence[Reference], weight: float | None) -> SearchedBy:
    """What ran: a picture and words together, or one of them alone."""
    if not references:
        return WORDS
    return PICTURE if weight == 1 else "a picture and words"


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
    if highest is not None and threshold is not None:
        return f"nothing was found: no score here reaches the threshold {threshold:g}; the best is {highest:.4f}"
    if offset and searched:
        return f"nothing was found: offset {offset} leaves out all of {counted(searched, 'picture')}"
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
            Contribution(
                term.id, term.factor, term.text, float(value), None if np.isnan(peak) else float(peak), term.reads
            )
            for term, value, peak in zip(query.terms, breakdown.values[i], breakdown.peaks[i], strict=True)
        )
        entry = entries[i]
        score = sum(part.value for part in contributions)
        hits.append(_hit(rank, entry, score, contributions))
    return tuple(hits)


def _hit(rank: int, entry: Entry, score: float, contributions: tuple[Contribution, ...]) -> Hit:
    return Hit(
        rank, entry.id, score, contributions, entry.path,
        metadata=entry.metadata, caption=entry.caption or None, width=entry.width, height=entry.height,
    )  # fmt: skip


def _unread(spec: EditSpec, encoder: Encoder) -> list[str]:
    notes = []
    for text in spec.phrases:
        unread = encoder.unread(text)
        if unread:
            notes.append(f"{encoder.card.name} reads only the beginning of {text[:40]!r}...; not read: {unread[:80]!r}")
    return notes
