"""A single search with another method than TAPR, if it only needs the reference, the edit and a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapr.encoders.base import Evidence
from tapr.errors import BadInput
from tapr.factorize.records import SPEC
from tapr.gallery import Gallery
from tapr.methods.base import Method, refuse_unread
from tapr.methods.features import BankView, Features
from tapr.methods.records import RecordSet
from tapr.methods.registry import METHODS, make_method
from tapr.options import RankOptions, SearchOptions
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.result import Contribution, Ranking
from tapr.score.compile import TAU, CompiledQuery
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.rank import rank
from tapr.search.topk import TopK
from tapr.types import Float32

_QUERY = "the search"
# Options for the methods that name them. Those of a question itself, and these, are not for the ranking by its scores;
# all others mean the same whatever scores.
_TUNES = ("factorizer", "weights", "tau", "score", "reference_weight", "reference_features", "kernel")
_OWN = (*_TUNES, "spec", "method", "explain")


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


def choose_method(name: str, given: Mapping[str, Any]) -> Method:
    """The named method, if it works for a single search and uses every given option."""
    given = {option: value for option, value in given.items() if option in _TUNES}
    method = make_method(name, weights=given.get("weights"), tau=given.get("tau", TAU))
    if not _works_alone(type(method)):
        usable = [other for other, row in METHODS.working() if _works_alone(row)]
        choose_one = f"use it in tapr eval, or choose {', '.join(usable)}"
        what = "records of a language model" if method.records else "more than a search gives it"
        raise BadInput(f"the method {name!r} needs {what}: {choose_one}", code="unknown_name")
    refuse_unread([method], given)
    return method


def _works_alone(method: type[Method]) -> bool:
    """Whether a reference, an edit and a spec are all that it reads."""
    return not (method.records or method.reads_captions or method.composes)


def rank_with_method(
    method: Method, gallery: Gallery, reference: Reference, factorization: Factorization, asked: SearchOptions
) -> Ranking:
    """Like rank.rank, with another method's scores. Such a score has no parts to explain."""

    def match(query: CompiledQuery, bank: Gallery, count: int) -> TopK:
        features = _WithReference(bank.encoder, BankView(bank, bank.rows), {}, reference.evidence)
        records = RecordSet({_QUERY: {SPEC: factorization.spec.to_dict()}}, "search")
        scores = method.score([_SearchQuery(asked.edit or factorization.spec.target)], records, features)[0]  # (N,)
        refuse_odd_scores(scores)
        best = best_of(scores, count)
        return TopK(best, scores[best], "numpy", exact=True)

    # the spec is compiled as a search by tapr does by default: what is the method's own it does not read from there
    shared = [name for name in asked.given if name in RankOptions.model_fields and name not in _OWN]
    plain = RankOptions.of(**{name: asked.given[name] for name in shared}, explain=False)
    ranking = rank(gallery, reference, factorization, plain, match)
    hits = tuple(
        replace(hit, contributions=(Contribution("target", "target", method.label, hit.score),))
        if asked.explain
        else hit
        for hit in ranking.hits
    )
    ours = (f"{method.label}, decided here: {method.ours}",) if method.ours else ()
    return replace(
        ranking,
        hits=hits,
        notes=(*ranking.notes, *ours),
        method=method.name,
        weights=asked.weights or ranking.weights,
        tau=asked.tau,
        score=None,
        reference_weight=None,
    )
