"""Makes records during a run: specs by a factorizer, and all other kinds from specs and captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Query
from tapr.evaluate.fallback import is_blank
from tapr.factorize.base import factorize
from tapr.factorize.failures import NoAnswer, ServerRefused, ServerUnreachable
from tapr.factorize.grounded import NAME, GroundedFactorizer
from tapr.factorize.records import SPEC
from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer
from tapr.factorize.seeing import seer_of
from tapr.images.decode import read_bytes, sha256_of
from tapr.methods import Features, RecordSet
from tapr.methods.captions import Captions, edited
from tapr.methods.record_kinds import (
    derive,
    kinds_needing_caption,
    kinds_using_caption,
    sampled_captions_needed,
    schemas,
)
from tapr.query.factorization import Factorization
from tapr.query.open_reference import shown
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec

Say = Callable[[str], None]
Make = Callable[[Query], Factorization]

_PROGRESS_REPORTS = 10  # progress reports per run


@dataclass(frozen=True, eq=False)
class RecordInputs:
    """The inputs that records are made from: a benchmark's queries and the vectors of their references."""

    dataset: Dataset
    features: tuple[Features, ...]  # one per part of the dataset
    kinds: frozenset[str]  # the kinds of record to make
    say: Say = lambda sentence: None

    @property
    def queries(self) -> list[Query]:
        """Return the queries that have an edit."""
        return [query for query in self.dataset.queries if not is_blank(query)]

    def captions(self) -> Captions | None:
        """Return captions of all references, or None if the encoder has no captioner."""
        seer = seer_of(self.features[0].encoder)
        if seer is None:
            return None
        names = list(dict.fromkeys(query.reference for query in self.queries))
        vectors = self.features[0].reference_vectors(names)
        return Captions(seer, names, vectors, self.reports(len(names), "references are described"))

    def reports(self, total: int, what: str) -> Callable[[int], None]:
        """Return a callback that counts progress and reports it at most ten times."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            before, done = done, done + more
            if total and before * _PROGRESS_REPORTS // total < done * _PROGRESS_REPORTS // total:
                self.say(f"{done:,} of {total:,} {what}")

        return advance


def factorized(source: RecordInputs, name: str) -> RecordSet:
    """Make a spec per query with a factorizer, and derive the wanted records from it."""
    captions = source.captions() if name == DEFAULT_FACTORIZER or kinds_using_caption(source.kinds) else None
    made_by, make = _maker(source, name, captions)
    payloads: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    failures: dict[str, Mapping[str, str]] = {}
    advance = source.reports(len(source.queries), "queries have their records")
    for query in source.queries:
        try:
            factorization = make(query)
            caption = captions.seen(query.reference).text if captions else _tagged(factorization.details)
            payloads[query.id] = _derived(source, query, factorization.spec, caption, captions)
            failures[query.id] = _without_caption(source, caption)
        except (ServerRefused, ServerUnreachable):
            raise  # the next query would fail in the same way
        except (BadInput, NoAnswer) as error:
            failures[query.id] = dict.fromkeys((SPEC, *schemas()), str(error))
        advance(1)
    offline = kinds_using_caption(source.kinds) if captions else frozenset()
    if made_by == NAME and captions:
        offline = source.kinds | {SPEC}  # the specs are edited captions themselves
    origin = f"factorizer {made_by}; other methods' records derived from its specs{_and(captions, source.kinds)}"
    return RecordSet(payloads, origin, failures, offline=offline)


def completed(records: RecordSet, source: RecordInputs) -> RecordSet:
    """Add the wanted kinds that the records lack, derived from their specs."""
    missing_records = source.kinds - records.kinds() - {SPEC}
    if not missing_records or SPEC not in records.kinds():
        return records
    captions = source.captions() if kinds_using_caption(missing_records) else None
    payloads: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    failures: dict[str, Mapping[str, str]] = {}
    wanted = replace(source, kinds=missing_records)
    advance = source.reports(len(source.queries), "queries have their records")
    for query in source.queries:
        caption = captions.seen(query.reference).text if captions else None
        try:
            derived = _derived(wanted, query, records.spec(query.id), caption, captions)
        except BadInput as error:
            failures[query.id] = dict.fromkeys(missing_records, str(error))
        else:
            payloads[query.id] = {kind: payload for kind, payload in derived.items() if kind != SPEC}
            failures[query.id] = _without_caption(wanted, caption)
        advance(1)
    derived_kinds = sorted({kind for derived in payloads.values() for kind in derived})
    if not derived_kinds:
        return records.joined(RecordSet({}, "none derived from its specs", failures))
    origin = f"records of {', '.join(derived_kinds)} derived from its specs{_and(captions, missing_records)}"
    offline = kinds_using_caption(missing_records) if captions else frozenset()
    if SPEC in records.offline:
        offline = missing_records
    return records.joined(RecordSet(payloads, origin, failures, offline=offline))


def _maker(source: RecordInputs, name: str, captions: Captions | None) -> tuple[str, Make]:
    """Return the factorizer's full name, and a function that factorizes a query."""
    factorizer = load_factorizer(name, encoder=source.features[0].encoder)

    def make(query: Query) -> Factorization:
        first, *more = (_reference(source, name) for name in query.references)
        if query.composed:  # read as a search reads several references, and a part of one
            references = [replace(first, crop=query.crop), *more]
            return factorize(references, query.edit, factorizer)
        if captions is not None and isinstance(factorizer, GroundedFactorizer):
            # captioned in batches before
            return factorizer.factorize(first, query.edit, captions.seen(query.reference))
        return factorizer.factorize(first, query.edit)

    return factorizer.name, make


def _reference(source: RecordInputs, name: str) -> Reference:
    data = read_bytes(source.dataset.pictures[name])
    return Reference(shown(data), source.features[0].references([name]), sha256_of(data))


def _derived(
    source: RecordInputs, query: Query, spec: EditSpec, caption: str | None, captions: Captions | None
) -> dict[str, Mapping[str, Any]]:
    """Return the spec, and the wanted records that can be derived from it."""
    count = sampled_captions_needed(source.kinds)
    drawn = captions.drawn(query.reference, count) if captions and count else []
    pairs = list(zip(drawn, edited(drawn, query.edit), strict=True))
    records = derive(spec, query.edit, caption, pairs)
    return {kind: payload for kind, payload in records.items() if kind == SPEC or kind in source.kinds}


def _without_caption(source: RecordInputs, caption: str | None) -> dict[str, str]:
    """Return kind -> why it cannot be made; empty if there is a caption."""
    if caption is not None:
        return {}
    encoder = source.features[0].encoder.card.name
    reason = f"it needs a caption of the reference, and the encoder {encoder} has no captioner"
    return dict.fromkeys(kinds_needing_caption(source.kinds), reason)


def _and(captions: Captions | None, kinds: frozenset[str]) -> str:
    """Return the end of the sentence that names the sources of the records."""
    if captions is not None:
        return " and captions of the offline captioner"
    return ", one sentence in several wordings where captions would be drawn" if sampled_captions_needed(kinds) else ""


def _tagged(details: Mapping[str, Any]) -> str | None:
    """Return the tags that a factorizer found in the reference, joined to a caption; None if it reports none."""
    tags = details.get("tags")
    if not isinstance(tags, Mapping) or not tags.get("subject"):
        return None
    attributes = [value for name, value in tags.items() if name != "subject" and isinstance(value, str)]
    return ", ".join([str(tags["subject"]), *attributes])
