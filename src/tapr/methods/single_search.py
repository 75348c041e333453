"""A single search with another method than TAPR, if it only needs the reference, the edit and a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapr.encoders.base import Evidence
from tapr.errors import BadInput
from tapr.factorize.records import SPEC
from tapr.gallery import Gallery
from tapr.methods.base import Method, refuse_unread
from tapr.methods.features import BankView, Features
from tapr.methods.records import RecordSet
from tapr.methods.registry import METHODS, make_method
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.result import Contribution, Hit, Ranking
from tapr.score.compile import TAU, CompiledQuery
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.rank import rank
from tapr.search.topk import TopK
from tapr.types import Float32

_QUERY = "the search"


@dataclass(frozen=True)
class _SearchQuery:
    edit: str
    id: str = _QUERY
    reference: str = _QUERY


@dataclass(frozen=True, eq=False)
class _WithReference(Features):
    """A gallery, and one reference that need not be in it."""

    reference: Evidence

    def references(self, names: Sequence[str]) -> Evidence:
        return self.reference

    def reference_vectors(self, names: Sequence[str]) -> Float32:
        return self.reference.global_vectors


def _unmatched(query: CompiledQuery, bank: Gallery, count: int) -> TopK:
    """Replaces the matching kernel, which other methods do not use."""
    return TopK(np.zeros(0, np.int64), np.zeros(0, np.float32), "numpy", exact=True)


def choose_method(name: str, given: Mapping[str, Any]) -> Method:
    """The named method, if it works for a single search and uses every given option."""
    method = make_method(name, weights=given.get("weights"), tau=given.get("tau", TAU))
    if not set(method.kinds) <= {SPEC}:
        usable = [other for other, row in METHODS.working() if not row.records]
        raise BadInput(
            f"the method {name!r} needs records of a language model: use it in tapr eval, or choose {', '.join(usable)}"
        )
    refuse_unread([method], given)
    return method


def rank_with_method(
    method: Method,
    gallery: Gallery,
    reference: Reference,
    factorization: Factorization,
    k: int,
    *,
    edit: str | None = None,
    exclude_reference: bool = True,
) -> Ranking:
    """Like rank.rank, with another method's scores. Such a score has no parts to explain."""
    # checks, notes and the compiled spec are the same for every method
    plain = rank(gallery, reference, factorization, k, exclude_reference=exclude_reference, matcher=_unmatched)
    if not len(gallery):
        return replace(plain, reference_weight=None, method=method.name)
    features = _WithReference(gallery.encoder, BankView(gallery, gallery.rows), {}, reference.evidence)
    records = RecordSet({_QUERY: {SPEC: factorization.spec.to_dict()}}, "search")
    scores = method.score([_SearchQuery(edit or factorization.spec.target)], records, features)[0]  # (N,)
    refuse_odd_scores(scores)
    excluded = gallery.positions_of(reference.sha256) if exclude_reference else np.zeros(0, np.int64)
    best = best_of(scores, min(k + len(excluded), len(scores)))
    positions = [int(position) for position in best if position not in excluded][:k]
    hits = [
        Hit(number, entry.id, entry.path, float(scores[position]),
            (Contribution("target", method.label, float(scores[position])),), entry.metadata, entry.caption or None)
        for number, (position, entry) in enumerate(zip(positions, gallery.entries(positions), strict=True), 1)
    ]  # fmt: skip
    ours = (f"{method.label}, decided here: {method.ours}",) if method.ours else ()
    return replace(plain, hits=tuple(hits), reference_weight=None, method=method.name, notes=(*plain.notes, *ours))
