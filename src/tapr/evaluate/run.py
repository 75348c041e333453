"""Runs methods and controls over one gallery and one set of records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import ComposingEncoder
from tapr.encoders.wrapper import innermost
from tapr.evaluate.controls import Variant
from tapr.evaluate.coverage import FOR_A_ROW, too_few
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.fallback import fallback_scores, scores, unanswerable
from tapr.evaluate.metrics import AnswerRanks, Outcome
from tapr.evaluate.ranking import GroundTruth, ground_truths
from tapr.evaluate.terms import GLOBAL, QueryTerms, TermChunk, query_terms, term_chunks
from tapr.evaluate.theta import Choice, best_of_grid, check_tunable, grid_values, label_free, operators
from tapr.evaluate.variant_weights import VariantGroup, VariantWeights
from tapr.methods import Features, Method, RecordSet
from tapr.methods.blas_threads import one_thread
from tapr.methods.record_kinds import unusable_records
from tapr.methods.records import FILE
from tapr.methods.tapr import Tapr
from tapr.query.scoring import DEFAULT_SCORING, Scoring
from tapr.query.spec import FACTORS
from tapr.score.compile import TAU
from tapr.search.probe_means import means_kernel
from tapr.types import Float32

_SCORES = 256 << 20  # bytes of scores in memory at once

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Experiment:
    """The material of an evaluation: a dataset with all pictures in one gallery, and the records of its queries."""

    dataset: Dataset
    features: tuple[Features, ...]  # of each part of the dataset
    records: RecordSet
    scoring: Scoring = DEFAULT_SCORING  # for TAPR and its controls
    offline: bool = True  # whether captions of the gallery's pictures are the offline captioner's

    def parts(self) -> Iterator[tuple[int, Part, Features, list[GroundTruth]]]:
        """(index of the part's first query, part, features, ground truths)"""
        first = 0
        keep = self.dataset.protocol.keep_reference
        for part, features in zip(self.dataset.parts, self.features, strict=True):
            yield first, part, features, ground_truths(part, part.queries, keep)
            first += len(part.queries)

    def outcome(self, places: Sequence[tuple[AnswerRanks, ...]]) -> Outcome:
        return self.dataset.outcome(places)

    @property
    def composed(self) -> bool:
        """Return whether queries have several references, or a part of one."""
        return any(features.composed for features in self.features)


@dataclass(frozen=True, eq=False)
class MethodResult:
    name: str
    label: str
    ours: str
    outcome: Outcome | None  # None: the answers are hidden
    top: dict[str, list[str]]  # query id -> names of the best pictures
    subset: dict[str, list[str]]  # query id -> the subset, ranked
    seconds: float
    without: dict[str, str] = field(default_factory=dict)  # query id -> why the fallback ranked this query
    offline: bool = False  # uses text from the offline captioner
    flipped: Outcome | None = None  # with the reference removed if the protocol keeps it, or kept if it removes it
    multi_pass: bool = False  # a language model saw pictures of the gallery


@dataclass(frozen=True, eq=False)
class ControlResult:
    name: str
    control: str
    outcome: Outcome


ChunkRanks = dict[int, list[tuple[AnswerRanks, ...]]]  # index of a query -> its ranks in every variant


class ChunkStore(Protocol):
    """Stores the ranks of finished chunks of queries, so that a stopped run can continue."""

    def get(self, key: str) -> ChunkRanks | None: ...
    def put(self, key: str, ranks_by_query: ChunkRanks) -> None: ...


class _NoChunkStore:
    def get(self, key: str) -> ChunkRanks | None:
        return None

    def put(self, key: str, ranks_by_query: ChunkRanks) -> None:
        pass


@dataclass(frozen=True, eq=False)
class Result:
    """The results of a run."""

    methods: list[MethodResult]
    controls: list[ControlResult]  # the first is Full TAPR; empty when none were asked for
    skipped: dict[str, str] = field(default_factory=dict)  # method -> why it could not be run
    failed: dict[str, str] = field(default_factory=dict)  # method -> what ended it
    tuning: dict[str, Any] = field(
        default_factory=dict
    )  # method -> its settings and their figures, where they were tried


def run_method(method: Method, experiment: Experiment, both: bool = False) -> MethodResult:
    """`both`: also rank with the reference flag inverted (kept or removed)."""
    ranks = _MethodRanks(method, experiment, both)
    for first, part, features, part_truths in experiment.parts():
        step = len(part.queries) if method.whole else max(1, _SCORES // (4 * len(part.gallery)))
        for start in range(0, len(part.queries), step):
            found = scores(method, part.queries[start : start + step], experiment.records, features, ranks.without)
            for place, row in enumerate(found, start):
                ranks.add(first + place, part, part_truths[place], row)
    return ranks.result()


class _MethodRanks:
    """Collects one method's ranks. Queries may come in any order."""

    def __init__(self, method: Method, experiment: Experiment, both: bool) -> None:
        self.method, self._experiment, self._both = method, experiment, both
        self.without: dict[str, str] = {}
        for part in experiment.dataset.parts:
            self.without |= unanswerable(method, part.queries, experiment.records)
        self._begin = time.perf_counter()
        count = len(experiment.dataset.queries)
        self._places: list[tuple[AnswerRanks, ...]] = [()] * count
        self._flipped: list[tuple[AnswerRanks, ...]] = [()] * count
        self._top: list[list[str]] = [[]] * count
        self._subset: dict[int, list[str]] = {}

    def add(self, place: int, part: Part, truth: GroundTruth, row: Float32) -> None:
        """Add the scores (N,) of the query with index `place`."""
        if not self._experiment.dataset.protocol.hidden:
            self._places[place] = truth.ranks(row[None])
            if self._both:
                self._flipped[place] = truth.ranks(row[None], not truth.keep_reference)
        self._top[place] = _names(part, truth.top(row))
        if truth.subset is not None:
            self._subset[place] = _names(part, truth.top_of_subset(row))

    def result(self) -> MethodResult:
        method, experiment = self.method, self._experiment
        ids = [query.id for query in experiment.dataset.queries]
        ranks_by_query = not experiment.dataset.protocol.hidden
        return MethodResult(
            method.name,
            method.label,
            own_decisions(method, experiment),
            experiment.outcome(self._places) if ranks_by_query else None,
            dict(zip(ids, self._top, strict=True)),
            {ids[place]: self._subset[place] for place in sorted(self._subset)},
            time.perf_counter() - self._begin,
            self.without,
            reads_offline(method, experiment),
            experiment.outcome(self._flipped) if ranks_by_query and self._both else None,
            method.multi_pass,
        )


def own_decisions(method: Method, experiment: Experiment) -> str:
    """Return what is not public of the original: constants, and the words in which a language model was asked."""
    versions = {version for kind in method.kinds for version in experiment.records.prompts.get(kind, ())}
    ours = sorted(version for version in versions if not version.startswith(FILE))
    asked = f"the wording of its prompts ({', '.join(ours)})" if ours else ""
    return "; ".join(part for part in (method.ours, asked) if part)


def reads_offline(method: Method, experiment: Experiment) -> bool:
    """Return whether a method uses text from the offline captioner."""
    return not experiment.records.offline.isdisjoint(method.kinds) or (method.reads_captions and experiment.offline)


def missing_records(method: Method, experiment: Experiment, needed: float = FOR_A_ROW) -> str:
    """Why a method cannot be run: too few queries have the records it needs; "" when enough have."""
    if method.reads_captions and any(features.captions is None for features in experiment.features):
        return "it reads captions of the gallery's pictures, and the bank has none: give them with --captions FILE"
    if method.composes and not isinstance(innermost(experiment.features[0].encoder), ComposingEncoder):
        card = experiment.features[0].encoder.card
        return f"the encoder {card.name} gives no vector for a picture and words together"
    return too_few(method, experiment.dataset.queries, experiment.records, needed)


def run_variants(
    asked: Sequence[Variant], experiment: Experiment, choice: Choice, kept: ChunkStore | None = None
) -> list[ControlResult]:
    """Score full TAPR and every control in one pass per chunk of queries. `kept` holds finished chunks."""
    return run_shared((), asked, experiment, choice, kept)[1]


def can_share(experiment: Experiment) -> bool:
    """Return whether the controls can reuse TAPR's probe matches. Only the compiled kernel returns them."""
    known = all(means_kernel(features.bank) is not None for features in experiment.features)
    return known and not experiment.composed


def run_shared(
    methods: Sequence[Method],
    asked: Sequence[Variant],
    experiment: Experiment,
    choice: Choice,
    kept: ChunkStore | None = None,
    both: bool = False,
) -> tuple[list[MethodResult], list[ControlResult]]:
    """Run TAPR, other methods that match a spec's atoms, and variants of TAPR, and match every atom only once.

    The methods must have a `shared_tau`. Results are bit for bit those of run_method. `kept` is as in run_variants,
    `both` as in run_method.
    """
    kept = _NoChunkStore() if kept is None else kept
    weigh = VariantWeights(asked, choice.weights)
    taus = sorted({variant.tau for variant in asked if variant.tau != GLOBAL})
    found: list[list[tuple[AnswerRanks, ...]]] = [[()] * len(experiment.dataset.queries) for _ in asked]
    ranks = [_MethodRanks(method, experiment, both) for method in methods]
    shared = [method.shared_tau for method in methods if method.shared_tau is not None] or None
    # the products of one query are too small for several threads
    with one_thread(), ThreadPoolExecutor(1, thread_name_prefix="tapr-terms") as pool:
        for first, part, features, part_truths in experiment.parts():
            with_spec, without = _by_spec(part.queries, experiment.records)
            queries = [part.queries[place] for place in with_spec]
            chunks = term_chunks(queries, experiment.records, features, taus, experiment.scoring, shared)
            for chunk, key, known in _ahead(chunks, pool, f"{part.name}:{first}", kept, bool(asked)):
                ranks_by_query = known
                if ranks_by_query is None:
                    ranks_by_query = {
                        first + with_spec[order]: _variant_ranks(
                            weigh(one), len(asked), one, part_truths[with_spec[order]]
                        )
                        for order, one in chunk
                    }
                    kept.put(key, ranks_by_query)
                for place, by_variant in ranks_by_query.items():
                    for number, places in enumerate(by_variant):
                        found[number][place] = places
                for one_of in ranks:
                    rows = one_of.method.score(
                        [queries[order] for order in chunk.places], experiment.records, chunk.features
                    )
                    for order, row in zip(chunk.places, rows, strict=True):
                        place = with_spec[order]
                        one_of.add(first + place, part, part_truths[place], row)
            for place in without:  # every variant gives the same ranking
                row = fallback_scores([part.queries[place]], features)
                for number, variant in enumerate(asked):
                    found[number][first + place] = part_truths[place].ranks(row, variant.keep_reference)
                for one_of in ranks:
                    one_of.add(first + place, part, part_truths[place], row[0])
    return [one_of.result() for one_of in ranks], [
        ControlResult(variant.name, variant.control, experiment.outcome(places))
        for variant, places in zip(asked, found, strict=True)
    ]


def _ahead(
    chunks: Iterable[TermChunk], pool: Executor, part: str, kept: ChunkStore, asked: bool
) -> Iterator[tuple[TermChunk, str, ChunkRanks | None]]:
    """(chunk, key, known ranks). The compiled kernel works on the next chunk while one is ranked."""
    last: tuple[TermChunk, str, ChunkRanks | None] | None = None
    for chunk in chunks:
        key = f"{part}:{chunk.places[0]}+{len(chunk.places)}"
        known = kept.get(key) if asked else {}
        if known is None and chunk.features.known is not None:
            chunk.begin(pool)
        if last is not None:
            yield last
        last = chunk, key, known
    if last is not None:
        yield last


def _variant_ranks(
    together: Sequence[VariantGroup], variants: int, terms: QueryTerms, truth: GroundTruth
) -> list[tuple[AnswerRanks, ...]]:
    """The ranks in every variant."""
    found: list[tuple[AnswerRanks, ...]] = [()] * variants
    for one in together:
        ranked = iter(truth.ranks_by_weights(one.rows, terms.rows[one.tau], one.keep_reference))
        for number, count in one.counts:
            found[number] = tuple(next(ranked) for _ in range(count))
    return found


def scaled_theta(experiment: Experiment, tau: float = TAU) -> Choice:
    return label_free(phi for _, phi, _ in _operators(experiment, tau, fallback=False))


def grid(experiment: Experiment, tau: float = TAU) -> list[float]:
    """The main metric at every grid point. The split must allow tuning."""
    protocol = experiment.dataset.protocol
    check_tunable(protocol)
    blank = experiment.outcome([(AnswerRanks((1.0,)),)] * len(experiment.dataset.queries))
    return grid_values(_operators(experiment, tau), blank.shares(), protocol.main)


def grid_theta(experiment: Experiment, tau: float = TAU) -> tuple[Choice, list[float]]:
    values = grid(experiment, tau)
    return best_of_grid(values, experiment.dataset.protocol), values


def _operators(
    experiment: Experiment, tau: float, fallback: bool = True
) -> Iterator[tuple[int, NDArray[np.float64], GroundTruth]]:
    """(query index, Phi, ground truth). Fallback scores have no theta."""
    for first, part, features, part_truths in experiment.parts():
        with_spec, without = _by_spec(part.queries, experiment.records)
        queries = [part.queries[place] for place in with_spec]
        for order, terms in query_terms(queries, experiment.records, features, (tau,), experiment.scoring):
            place = with_spec[order]
            yield first + place, operators(terms, tau), part_truths[place]
        for place in without if fallback else ():
            alone = np.zeros((len(FACTORS) + 1, len(part.gallery)))
            alone[-1] = fallback_scores([part.queries[place]], features)[0]
            yield first + place, alone, part_truths[place]


def _by_spec(queries: Sequence[Query], records: RecordSet) -> tuple[list[int], list[int]]:
    """Indices of the queries that have a spec, and of those that have none."""
    without = unusable_records(Tapr(), queries, records)
    places = range(len(queries))
    return [p for p in places if queries[p].id not in without], [p for p in places if queries[p].id in without]


def _names(part: Part, positions: Sequence[int]) -> list[str]:
    return [part.gallery[position] for position in positions]
