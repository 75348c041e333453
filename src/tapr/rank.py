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
from tapr.match import TopK, top_k
from tapr.ranking import Contribution, Hit, Ranking
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.score.definition import term_scores
from tapr.score.factors import BY_NAME
from tapr.spec import EditSpec, Weights
from tapr.stay import DEFAULT_SCORING, Decision, Scoring

Matcher = Callable[[CompiledQuery, Gallery, int], TopK]  # query, bank, k


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
    matcher: Matcher = top_k,
) -> Ranking:
    """What is repeated when a person changes a factor.

    Without a reference the words decide alone, and nothing has to be decided about what stays.
    """
    k = count(k, "k")
    clock = Clock()
    encoder, spec = gallery.encoder, factorization.spec
    encoded = EncodedSpec.of(spec, reference.evidence if reference else None, encoder)
    (decided,) = scoring.decide([spec], encoded.target[None], gallery) if reference else (Decision(None),)
    query = encoded.compile(weights, tau, decided.continuity)
    clock.lap("compile")

    excluded = set(gallery.positions_of(reference.sha256).tolist()) if reference and exclude_reference else set()
    wanted = min(k + len(excluded), len(gallery))
    best = matcher(query, gallery, wanted) if wanted else None
    positions = [int(position) for position in best.positions if position not in excluded][:k] if best else []
    clock.lap("match")

    hits = explain_hits(query, gallery, positions)
    clock.lap("explain")
    return Ranking(
        hits=hits,
        spec=spec,
        factorizer=factorization.factorizer,
        encoder=gallery.card.name,
        extractor=gallery.card.extractor,
        kernel=best.kernel if best else "none: there was nothing to match",
        searched=len(gallery) - len(excluded),
        notes=(*factorization.notes, *decided.notes, *(best.notes if best else ()), *_unread(spec, encoder)),
        seconds=clock.laps,
        query=query,
        reference=reference,
        gallery=gallery,
        rescored=best.rescored if best else None,
        scoring=scoring,
        stay=None if decided.continuity is None else decided.continuity.stay,
        stay_notes=decided.notes,
    )


def explain_hits(query: CompiledQuery, gallery: Gallery, positions: list[int]) -> tuple[Hit, ...]:
    """Scores by the definition, in float64, split into terms; the kernel's order stands but for its rounding."""
    if not positions:
        return ()
    block = gallery.gather(gallery.rows[np.array(positions, np.int64)])
    local_vectors = block.decoded()
    parts = term_scores(query, block.global_vectors, local_vectors)  # (k, terms)
    peaks = _peaks(query, local_vectors)
    order = sorted(range(len(positions)), key=lambda i: (-parts[i].sum(), positions[i]))
    entries = gallery.entries(positions)
    hits = []
    for rank, i in enumerate(order, 1):
        contributions = tuple(
            Contribution(term.factor, term.text, float(value), peak[i] if peak else None)
            for term, value, peak in zip(query.terms, parts[i], peaks, strict=True)
        )
        entry = entries[i]
        score = sum(part.value for part in contributions)
        hits.append(Hit(rank, entry.id, entry.path, score, contributions, entry.metadata, entry.caption or None))
    return tuple(hits)


def _peaks(query: CompiledQuery, local_vectors: NDArray[Any]) -> list[list[float] | None]:
    """Of each term its best cosine in each picture, (k,); None for what is no phrase with a place."""
    placed = [term.reads == "local" and BY_NAME[term.factor].from_words for term in query.terms]
    starts = [term.start for term, wanted in zip(query.terms, placed, strict=True) if wanted]
    found = iter(np.einsum("nd,kmd->nkm", query.probes[starts], local_vectors.astype(np.float32)).max(axis=-1).tolist())
    return [next(found) if wanted else None for wanted in placed]


def _unread(spec: EditSpec, encoder: Encoder) -> list[str]:
    notes = []
    for text in spec.phrases:
        unread = encoder.unread(text)
        if unread:
            notes.append(f"{encoder.card.name} reads only the beginning of {text[:40]!r}...; not read: {unread[:80]!r}")
    return notes
