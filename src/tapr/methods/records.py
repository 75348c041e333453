"""The records that methods read: one per query and kind, validated by the kind's schema."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tapr.errors import BadInput
from tapr.factorize.failures import BadAnswer, BadRecords
from tapr.factorize.records import FAILURE, HAND, SPEC, Maker, Record, RecordedQuestion, RecordFile, plain
from tapr.methods.captions import is_offline
from tapr.query.spec import EditSpec

if TYPE_CHECKING:
    from tapr.methods.base import QueryLike


@dataclass(frozen=True)
class RecordSource:
    """The inputs that records are derived from without a language model. All methods get the same."""

    spec: EditSpec
    edit: str
    caption: str | None  # of the reference
    captions: tuple[str, ...]  # several sampled or reworded captions; empty without a caption
    descriptions: tuple[str, ...]  # the same captions with the edit applied; without a caption, wordings of the target


class Payload(BaseModel):
    """The content of a record. Every kind has a subclass in its method's file."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_min_length=1, str_strip_whitespace=True)
    kind: ClassVar[str]
    prompt: ClassVar[str] = ""  # for a language model: see methods/record_prompts.py; "": none is asked
    needs_caption: ClassVar[bool] = False  # cannot be derived without a caption of the reference
    reads_caption: ClassVar[bool] = False  # uses a caption if there is one
    sampled_captions: ClassVar[int] = 0  # sampled captions that it needs

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any] | None:
        """Derive the payload without a language model; None if there is no rule."""
        return None

    @classmethod
    def example(cls, words: RecordSource) -> dict[str, Any]:
        """Return what a prompt's worked example answers: as derived, in the record's own form."""
        return cls.model_validate(cls.derived(words)).model_dump()

    @classmethod
    def read(cls, value: Mapping[str, Any], query_id: str) -> Self:
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise BadRecords(f"the {cls.kind} record of query {query_id!r} is {_problem(error)}") from None

    @classmethod
    def check(cls, value: Mapping[str, Any], names: Collection[str]) -> None:
        """Check some fields. The error message tells a model how to fix its answer."""
        try:
            cls.model_validate(value)
        except ValidationError as error:
            problem = _problem(error, names)
            if problem:
                raise BadAnswer(f"it is {problem}") from None


def _problem(error: ValidationError, names: Collection[str] | None = None) -> str:
    """Return the first problem that concerns these fields or the whole record; "" if there is none."""
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        if names is None or not problem["loc"] or problem["loc"][0] in names:
            return (
                f"wrong at {place!r}: {problem['msg']}"
                if place
                else f"wrong: {problem['msg'].removeprefix('Value error, ')}"
            )
    return ""


FILE = "file:"  # before the name of a prompt that a user gave
AnyPayload = TypeVar("AnyPayload", bound=Payload)
AnyValue = TypeVar("AnyValue")


class RecordSet:
    """Records by query and kind."""

    def __init__(
        self,
        payloads: Mapping[str, Mapping[str, Mapping[str, Any]]],
        origin: str,
        failures: Mapping[str, Mapping[str, str]] | None = None,
        notes: tuple[str, ...] = (),
        offline: Collection[str] = (),
        prompts: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._payloads = payloads  # query id -> kind -> payload
        self._failures = failures or {}  # query id -> kind -> why there is no such record
        self.origin = origin  # where they come from, for run files
        self.notes = notes  # what must be said of them beside every figure
        self.offline = frozenset(offline)  # kinds that hold words of the offline captioner
        # kind -> versions of the prompts that a language model was asked by; one that a user gave is FILE...
        self.prompts = {kind: frozenset(versions) for kind, versions in (prompts or {}).items()}

    @classmethod
    def from_files(
        cls,
        paths: Sequence[str | Path],
        queries: Sequence[QueryLike],
        pictures: Mapping[str, str],
        benchmark: tuple[str, str] = ("", ""),
        wanted: RecordFilter | None = None,
    ) -> RecordSet:
        """Read record files and match them with queries.

        A record belongs to the query with its id, if its dataset, split, picture and edit (as far as given) are those
        of the query. A record without an id is matched by picture and edit. Of several records of a kind, the last one
        wins.
        `pictures`: name -> sha256; `benchmark`: dataset and split; `wanted`: use only records of this model or prompt.
        """
        payloads: dict[str, dict[str, Mapping[str, Any]]] = {}
        failures: dict[str, dict[str, str]] = {}
        makers: dict[tuple[str, str], set[Maker]] = {}  # per query and kind, without records written by hand
        origins, notes, offline, unmatched = [], list[str](), set[str](), dict[str, str]()
        filled: Counter[str] = Counter()
        prompts: dict[str, set[str]] = {}
        for path in map(Path, paths):
            records, torn = RecordFile(path).read()
            if torn:
                raise BadRecords(f"{torn}: complete the records before they are evaluated")
            matched = _RecordMatcher(queries, pictures, benchmark, wanted)
            used = [(record, query_id) for record in records for query_id in matched.queries_of(record)]
            for record, query_id in used:
                if record.kind == FAILURE:
                    kind = str(record.payload.get("kind", SPEC))
                    failures.setdefault(query_id, {})[kind] = str(record.payload.get("error", "no reason was kept"))
                    continue
                payloads.setdefault(query_id, {})[record.kind] = record.payload
                if record.maker != HAND:
                    makers.setdefault((query_id, record.kind), set()).add(record.maker)
                filled[record.kind] += record.details.get("filled") is True
            models = sorted({record.maker.model for record, _ in used}) or ["nobody asked for"]
            versions = sorted({record.maker.prompt for record, _ in used if record.maker.prompt})
            prompt_note = f"; prompts {', '.join(versions)}" if versions else ""
            origins.append(f"{path.name} (made by {', '.join(models)}{prompt_note})")
            notes += [f"{path.name}: {note}" for note in (matched.sentence(), matched.warning()) if note]
            for record, _ in used:
                if record.maker.prompt_sha256:
                    prompts.setdefault(record.kind, set()).add(record.maker.prompt or record.maker.prompt_sha256[:12])
            offline |= {record.kind for record, _ in used if is_offline(record.maker)}
            if records and not used:
                unmatched[path.name] = matched.reasons()
        if unmatched and not (payloads or failures):
            what = (
                f"none of the records in {', '.join(unmatched)} answers a query of this run: "
                f"{'; '.join(unmatched.values())}; give the records that were made for this split"
            )
            raise BadRecords(what, code="no_record")
        several = [key for key, several_makers in makers.items() if len(several_makers) > 1]
        if several:
            notes.append(
                f"{len(several):,} records are there more than once, by several models or prompts, such as that of "
                f"query {several[0][0]}: the last one was taken; choose with --records-model or --records-prompt"
            )
        notes += [
            f"{count:,} {kind} records were filled up from fewer texts" for kind, count in filled.items() if count
        ]
        return cls(payloads, "; ".join(origins), failures, tuple(notes), offline, prompts)

    def digest(self) -> str:
        canonical = json.dumps(self._payloads, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def kinds(self) -> frozenset[str]:
        """Return all kinds in this set, including those of failures."""
        by_query = (*self._payloads.values(), *self._failures.values())
        return frozenset(kind for entry in by_query for kind in entry)

    def joined(self, other: RecordSet) -> RecordSet:
        """Return the union of both sets. If both have a record, the other's is used."""
        return RecordSet(
            _joined(self._payloads, other._payloads),
            f"{self.origin}; {other.origin}",
            _joined(self._failures, other._failures),
            (*self.notes, *other.notes),
            self.offline | other.offline,
            {
                kind: self.prompts.get(kind, frozenset()) | other.prompts.get(kind, frozenset())
                for kind in {**self.prompts, **other.prompts}
            },
        )

    def has(self, kind: str, query_ids: Sequence[str]) -> bool:
        """Return whether every query has a record of this kind."""
        return all(kind in self._payloads.get(query_id, ()) for query_id in query_ids)

    def get(self, schema: type[AnyPayload], query_id: str) -> AnyPayload:
        return schema.read(self._payload(schema.kind, query_id, bool(schema.prompt)), query_id)

    def spec(self, query_id: str) -> EditSpec:
        payload = self._payload(SPEC, query_id)
        try:
            return EditSpec.from_dict(dict(payload))
        except BadInput as error:
            raise BadRecords(f"the spec record of query {query_id!r} cannot be used: {error}") from None

    def _payload(self, kind: str, query_id: str, can_be_made: bool = True) -> Mapping[str, Any]:
        try:
            return self._payloads[query_id][kind]
        except KeyError:
            failure = self._failures.get(query_id, {}).get(kind)
            source = f"make it with tapr factorize --for {kind}" if can_be_made else "give it with --records"
            what = f"its making failed ({failure})" if failure else source
            raise BadRecords(f"query {query_id!r} has no {kind} record: {what}", code="no_record") from None


def _joined(
    first: Mapping[str, Mapping[str, AnyValue]], second: Mapping[str, Mapping[str, AnyValue]]
) -> dict[str, Mapping[str, AnyValue]]:
    """Merge query id -> kind -> value."""
    return {query_id: {**first.get(query_id, {}), **second.get(query_id, {})} for query_id in {**first, **second}}


@dataclass(frozen=True)
class RecordFilter:
    """Selects records by model and prompt version; "" means any. Records written by hand are always included."""

    model: str = ""
    prompt: str = ""

    def includes(self, maker: Maker) -> bool:
        if maker == HAND:
            return True
        model = not self.model or self.model in (maker.model, maker.model.removeprefix("openai:"))
        return model and (not self.prompt or self.prompt in (maker.prompt, maker.prompt_sha256))


class _RecordMatcher:
    """Finds the queries of a record, and counts by reason the records that match none."""

    def __init__(
        self,
        queries: Sequence[QueryLike],
        pictures: Mapping[str, str],
        benchmark: tuple[str, str],
        wanted: RecordFilter | None,
    ) -> None:
        self._pictures, self._benchmark, self._wanted = pictures, benchmark, wanted or RecordFilter()
        self._by_id = {query.id: query for query in queries}
        self._by_pair: dict[tuple[str | None, str], list[str]] = {}
        for query in queries:
            self._by_pair.setdefault((pictures.get(query.reference), plain(query.edit)), []).append(query.id)
        self._seen = 0
        self._elsewhere: Counter[str] = Counter()  # records made for other queries
        self._unmatched: Counter[str] = Counter()
        self._by_id_alone = 0

    def queries_of(self, record: Record) -> Sequence[str]:
        self._seen += 1
        if not self._wanted.includes(record.maker):
            self._elsewhere["another model or prompt"] += 1
            return ()
        query_ids = self._by_pair.get(((record.image or "").lower(), plain(record.edit or "")), [])
        query = self._by_id.get(record.id if record.id is not None else next(iter(query_ids), ""))
        differs = record.differs_from(self._question(query))
        if differs in ("dataset", "split"):
            self._elsewhere[f"another {differs}"] += 1
        elif query is None:
            self._unmatched["the picture and edit of no query" if record.id is None else "the id of no query"] += 1
        elif record.id is None:
            return query_ids
        elif differs is not None:
            self._unmatched[f"the id of a query but another {differs}"] += 1
        else:
            self._by_id_alone += record.edit is None and record.image is None
            return (query.id,)
        return ()

    def _question(self, query: QueryLike | None) -> RecordedQuestion:
        if query is None:
            return RecordedQuestion("", None, *self._benchmark)
        return RecordedQuestion(query.edit, self._pictures.get(query.reference), *self._benchmark)

    def sentence(self) -> str:
        """Say why some records match no query; "" if all do."""
        if not self._unmatched:
            return ""
        return f"{self._unmatched.total():,} of {self._seen:,} records answer no query of this run: {self.reasons()}"

    def reasons(self) -> str:
        return ", ".join(
            f"{count:,} have {reason}" for reason, count in (self._unmatched + self._elsewhere).most_common()
        )

    def warning(self) -> str:
        if not self._by_id_alone:
            return ""
        return f"{self._by_id_alone:,} records name neither edit nor picture and were matched by their query's id alone"
