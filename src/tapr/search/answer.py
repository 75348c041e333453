"""The answer to a question: its top k as hits with contributions, near duplicates, paging, threshold and notes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tapr.encoders.base import Encoder
from tapr.errors import BadOption
from tapr.gallery import Gallery
from tapr.options import RankOptions
from tapr.query.crop import notes_of_references
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.single_modality import PICTURE, WORDS
from tapr.query.spec import DEFAULT_WEIGHTS, EditSpec
from tapr.result import Contribution, Hit, Ranking, ReferenceInfo, SearchedBy
from tapr.score.breakdown import Breakdown, breakdown_of
from tapr.score.compile import CompiledQuery
from tapr.search.feedback import Marked, notes_of_marks
from tapr.search.near_duplicates import MAX_PLACES, first_near_duplicates
from tapr.search.reference_weight import Decision
from tapr.search.sort import check_column, sorted_hits
from tapr.search.topk import TopK
from tapr.store.catalog import Entry
from tapr.utils.amounts import counted

_BATCH = 128  # pictures explained at a time: their vectors are widened to float64


@dataclass(frozen=True, eq=False)
class Question:
    """A search that is read and compiled: what is ranked, and over which pictures."""

    options: RankOptions
    gallery: Gallery  # the part that is searched
    encoder: Encoder
    references: tuple[Reference, ...]
    marked: tuple[Marked, ...]
    factorization: Factorization
    decision: Decision  # how much of the references stays
    query: CompiledQuery

    def __post_init__(self) -> None:
        check_column(self.options.sort, self.gallery)
        last = min(self.options.offset + self.options.k, len(self.gallery))
        if self.options.near_duplicates is not None and last > MAX_PLACES:
            what = (
                f"near_duplicates compares the first {MAX_PLACES:,} places of a ranking: ask for fewer, or without it"
            )
            raise BadOption(what, "near_duplicates")

    @cached_property
    def excluded(self) -> frozenset[int]:
        """Positions of the pictures that the question itself shows."""
        if not self.options.exclude_reference:
            return frozenset()
        pictures = (*self.references, *(marked.picture for marked in self.marked))
        return frozenset(int(p) for picture in pictures for p in self.gallery.positions_of(picture.sha256))

    @property
    def searched(self) -> int:
        return len(self.gallery) - len(self.excluded)

    @property
    def wanted(self) -> int:
        """How many pictures have to be found for this page, those that are left out included."""
        if self.options.offset >= self.searched:
            return 0
        return min(self.options.offset + self.options.k + len(self.excluded), len(self.gallery))

    @property
    def reference_weight(self) -> float | None:
        return None if self.decision.continuity is None else self.decision.continuity.reference_weight

    @property
    def searched_by(self) -> SearchedBy:
        """What ran: a picture and words together, or one of them alone."""
        if not self.references:
            return WORDS
        return PICTURE if self.reference_weight == 1 else "a picture and words"


def answer(question: Question, top: TopK | None) -> Ranking:
    """Make the answer from the top k; None: there was nothing to match."""
    options, gallery, factorization = question.options, question.gallery, question.factorization
    hits = _hits(question, top)
    best_score = hits[0].score if hits else None
    hits = tuple(hit for hit in hits if options.threshold is None or hit.score >= options.threshold)
    references = question.references
    return Ranking(
        hits=sorted_hits(hits, options.sort, gallery),
        method=options.method,
        searched_by=question.searched_by,
        spec=factorization.spec,
        weights=options.weights or factorization.spec.weights or DEFAULT_WEIGHTS,
        reference=ReferenceInfo.of(references[0]) if references else None,
        factorizer=factorization.factorizer,
        encoder=gallery.card.name,
        extractor=gallery.card.extractor,
        kernel=top.kernel if top else None,
        rescored=top.rescored if top else None,
        prefilter=top.proof if top else None,
        score=options.score,
        tau=question.query.tau,
        reference_weight=question.reference_weight,
        reference_weight_notes=question.decision.notes,
        searched=question.searched,
        snapshot=gallery.manifest.snapshot or 0,
        notes=(*(() if hits else (why_nothing(question, best_score),)), *_notes(question, top)),
        query=question.query,
        gallery=gallery,
        references=references,
    )


def _notes(question: Question, top: TopK | None) -> tuple[str, ...]:
    """Return sentences for the person who asked."""
    factorization, encoder = question.factorization, question.encoder
    return (
        *factorization.notes,
        *notes_of_references(question.references, encoder.card, words=question.searched_by != PICTURE),
        *notes_of_marks(question.marked, left_out=question.options.exclude_reference),
        *question.decision.notes,
        *(top.notes if top else ()),
        *_unread(factorization.spec, encoder),
    )


def _hits(question: Question, top: TopK | None) -> tuple[Hit, ...]:
    """Return the hits of this page, before any threshold."""
    if top is None:
        return ()
    options, gallery = question.options, question.gallery
    kept = [place for place, position in enumerate(top.positions.tolist()) if position not in question.excluded]
    kept = kept[: options.offset + options.k]
    shown = kept[options.offset :]
    positions = top.positions[shown].tolist()
    if options.explain:
        known = top.breakdown
        breakdown = known.take(shown) if known and shown and shown[-1] < len(known) else None
        hits = explain_hits(question.query, gallery, positions, options.offset + 1, breakdown)
    else:
        hits = _plain_hits(gallery, positions, top.scores[shown].tolist(), options.offset + 1)
    if options.near_duplicates is None:
        return hits
    return mark_near_duplicates(hits, gallery, top.positions[kept].tolist(), options.near_duplicates)


def explain_hits(
    query: CompiledQuery, gallery: Gallery, positions: list[int], first: int = 1, breakdown: Breakdown | None = None
) -> tuple[Hit, ...]:
    """Return hits with scores by the definition, in float64, split into terms; only the kernel's rounding is mended.

    `breakdown` is that of these positions, if it came with the top k; otherwise it is calculated here.
    """
    if not positions:
        return ()
    if breakdown is None:
        rows = gallery.rows[np.array(positions, np.int64)]
        blocks = (gallery.gather(rows[start : start + _BATCH]) for start in range(0, len(rows), _BATCH))
        breakdown = Breakdown.join([breakdown_of(query, block) for block in blocks])
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
        hits.append(_hit(rank, entries[i], sum(part.value for part in contributions), contributions))
    return tuple(hits)


def mark_near_duplicates(hits: tuple[Hit, ...], gallery: Gallery, ranked: list[int], cosine: float) -> tuple[Hit, ...]:
    """Name the better hit that each hit nearly equals; `ranked` are all positions from the best to the last hit."""
    if not ranked:
        return hits
    place = {hit.id: len(ranked) + number for number, hit in enumerate(hits)}  # as the hits are shown, not as matched
    in_order = sorted(enumerate(gallery.entries(ranked)), key=lambda pair: place.get(pair[1].id, pair[0]))
    vectors = gallery.gather(gallery.rows[[ranked[number] for number, _ in in_order]]).global_vectors
    entries = [entry for _, entry in in_order]
    firsts = first_near_duplicates(vectors, [entry.sha256 for entry in entries], cosine)
    better = {entry.id: entries[first].id for entry, first in zip(entries, firsts, strict=True) if first is not None}
    return tuple(replace(hit, near_duplicate_of=better.get(hit.id)) for hit in hits)


def why_nothing(question: Question, best_score: float | None) -> str:
    """Say why an answer is empty."""
    threshold, offset, gallery = question.options.threshold, question.options.offset, question.gallery
    if best_score is not None:
        return f"nothing was found: no score here reaches the threshold {threshold:g}; the best is {best_score:.4f}"
    if offset and question.searched:
        return f"nothing was found: offset {offset} leaves out all of {counted(question.searched, 'picture')}"
    if len(gallery):
        return "nothing was found: the reference is the only picture searched, and it is left out of the answer"
    if gallery.condition:
        return f"nothing was found: no picture of the gallery meets the filter {gallery.condition[:200]!r}"
    return "nothing was found: the gallery has no pictures"


def _plain_hits(gallery: Gallery, positions: list[int], scores: list[float], first: int) -> tuple[Hit, ...]:
    """Return hits with the kernel's scores and without contributions."""
    scored = zip(gallery.entries(positions), scores, strict=True)
    return tuple(_hit(rank, entry, score, ()) for rank, (entry, score) in enumerate(scored, first))


def _hit(rank: int, entry: Entry, score: float, contributions: tuple[Contribution, ...]) -> Hit:
    return Hit(
        rank, entry.id, score, contributions, entry.path,
        metadata=entry.metadata, caption=entry.caption or None, width=entry.width, height=entry.height,
    )  # fmt: skip


def _unread(spec: EditSpec, encoder: Encoder) -> list[str]:
    """Say which phrases are longer than the encoder reads."""
    rests = {phrase: encoder.unread(phrase) for phrase in spec.phrases}
    return [
        f"{encoder.card.name} reads only the beginning of {phrase[:40]!r}...; not read: {rest[:80]!r}"
        for phrase, rest in rests.items()
        if rest
    ]
