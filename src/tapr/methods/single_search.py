"""A single search with another method than TAPR, if it only needs the reference, the edit and a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tapr.encoders.base import Evidence
from tapr.errors import BadInput
from tapr.factorize.records import SPEC
from tapr.methods.base import Method, refuse_unread
from tapr.methods.features import BankView, Features
from tapr.methods.records import RecordSet
from tapr.methods.registry import METHODS, make_method
from tapr.options import RankOptions, SearchOptions, traits_of
from tapr.result import Contribution, Ranking
from tapr.score.compile import TAU
from tapr.search.answer import Question, answer
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.topk import TopK
from tapr.types import Float32
from tapr.utils.clock import Clock

if TYPE_CHECKING:
    from tapr.search.searcher import Searcher

_QUERY = "the search"
_OWN = ("spec", "method")  # options of the question itself


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
    given = {name: value for name, value in given.items() if name == "kernel" or traits_of(name).tunes}
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


def search_with_method(searcher: Searcher, options: SearchOptions) -> Ranking:
    """Search with another method's scores. Such a score has no parts to explain."""
    kernel = {} if searcher.kernel is None else {"kernel": searcher.kernel}
    method = choose_method(options.method, {**options.given, **kernel})
    clock = Clock()
    pictures = searcher.open_pictures(options)
    clock.lap("reference")
    if "factorizer" not in method.options:  # nobody reads the spec, so none is made
        options = options.model_copy(update={"factorizer": "target-only"})
    factorization = searcher.read_edit(options, pictures.references)
    clock.lap("factorize")
    question = searcher.compile(_plain(options), pictures, factorization)
    clock.lap("compile")
    top = _top_k(method, question, options.edit or factorization.spec.target) if question.wanted else None
    clock.lap("match")
    ranking = answer(question, top)
    clock.lap("explain")
    hits = ranking.hits
    if options.explain:
        hits = tuple(replace(hit, contributions=(_whole_score(method, hit.score),)) for hit in hits)
    return replace(
        ranking,
        hits=hits,
        notes=(*ranking.notes, *((f"{method.label}, decided here: {method.ours}",) if method.ours else ())),
        method=method.name,
        weights=options.weights or ranking.weights,
        tau=options.tau,
        score=None,
        reference_weight=None,
        seconds=clock.laps,
    )


def _plain(options: SearchOptions) -> RankOptions:
    """Return the options that mean the same whatever scores: those that tune scores are the method's own."""
    shared = {
        name: value
        for name, value in options.given.items()
        if name in RankOptions.model_fields and not traits_of(name).tunes and name not in _OWN
    }
    return RankOptions.of(**shared | {"explain": False})


def _top_k(method: Method, question: Question, edit: str) -> TopK:
    gallery = question.gallery
    features = _WithReference(question.encoder, BankView(gallery, gallery.rows), {}, question.references[0].evidence)
    records = RecordSet({_QUERY: {SPEC: question.factorization.spec.to_dict()}}, "search")
    scores = method.score([_SearchQuery(edit)], records, features)[0]  # (N,)
    refuse_odd_scores(scores)
    best = best_of(scores, question.wanted)
    return TopK(best, scores[best], "numpy", exact=True)


def _whole_score(method: Method, score: float) -> Contribution:
    return Contribution("target", "target", method.label, score)
