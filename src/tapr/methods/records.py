"""The query side of a method, prepared beforehand: one record a query and kind, checked against the kind's schema."""

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
from tapr.factorize.records import FAILURE, SPEC, Record, RecordFile, plain
from tapr.methods.captions import is_offline
from tapr.spec import EditSpec

if TYPE_CHECKING:
    from tapr.methods.base import Asked


@dataclass(frozen=True)
class Words:
    """What is known of a query where no language model is asked: every method's record is derived from the same."""

    spec: EditSpec
    edit: str
    caption: str | None  # of the reference
    captions: tuple[str, ...]  # several, drawn by chance or worded differently; none without a caption
    descriptions: tuple[str, ...]  # these with the edit applied, in the same order; of the target, without a caption


class Payload(BaseModel):
    """What a record of one kind holds; a method's file defines its own."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_min_length=1, str_strip_whitespace=True)
    kind: ClassVar[str]
    prompt: ClassVar[str] = ""  # for a language model: see methods/ask.py; "": none is asked
    needs_caption: ClassVar[bool] = False  # of the reference: no record is derived without one
    reads_caption: ClassVar[bool] = False  # it is derived from one where there is one
    draws: ClassVar[int] = 0  # captions drawn by chance that it takes

    @classmethod
    def derived(cls, words: Words) -> dict[str, Any] | None:
        """The payload from what is known without a language model; None: there is no rule for it."""
        return None

    @classmethod
    def read(cls, value: Mapping[str, Any], query_id: str) -> Self:
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise BadInput(
                f"the {cls.kind} record of query {query_id!r} is wrong at {place!r}: {first['msg']}"
            ) from None


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
    ) -> None:
        self._payloads = payloads  # query id -> kind -> payload
        self._failures = failures or {}  # query id -> kind -> why there is no such record
        self.origin = origin  # where they come from, for run files
        self.notes = notes  # what must be said of them beside every figure
        self.offline = frozenset(offline)  # kinds that hold words of the offline captioner

    @classmethod
    def from_file(cls, path: str | Path, queries: Sequence[Asked], pictures: Mapping[str, str]) -> RecordSet:
        """A record answers the query of its id if its edit and its picture are the query's; one without an id, that
        of its picture and edit. `pictures`: name -> sha256. The last one of a kind wins."""
        records, torn = RecordFile(path).read()
        if torn:
            raise BadInput(f"{torn}: complete the records before they are evaluated")
        payloads: dict[str, dict[str, Mapping[str, Any]]] = {}
        failures: dict[str, dict[str, str]] = {}
        matched = _Matches(queries, pictures)
        for record in records:
            for query_id in matched.queries_of(record):
                if record.kind == FAILURE:
                    kind = str(record.payload.get("kind", SPEC))
                    failures.setdefault(query_id, {})[kind] = str(record.payload.get("error", "no reason was kept"))
                else:
                    payloads.setdefault(query_id, {})[record.kind] = record.payload
        name = Path(path).name
        if records and not (payloads or failures):
            raise BadInput(
                f"none of the records in {name} answers a query of this run: {matched.reasons()}; "
                "give the records that were made for this split"
            )
        makers = sorted({record.maker.model for record in records})
        notes = tuple(f"{name}: {sentence}" for sentence in (matched.sentence(), matched.warning()) if sentence)
        offline = {record.kind for record in records if is_offline(record.maker)}
        return cls(payloads, f"{name} (made by {', '.join(makers)})", failures, notes, offline)

    def digest(self) -> str:
        canonical = json.dumps(self._payloads, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def kinds(self) -> frozenset[str]:
        """Those that a query has, or should have had: a failure names its kind too."""
        found = (*self._payloads.values(), *self._failures.values())
        return frozenset(kind for one in found for kind in one)

    def joined(self, other: RecordSet) -> RecordSet:
        """These and the other's; of one kind and query, the other's."""
        return RecordSet(
            _joined(self._payloads, other._payloads),
            f"{self.origin}; {other.origin}",
            _joined(self._failures, other._failures),
            (*self.notes, *other.notes),
            self.offline | other.offline,
        )

    def has(self, kind: str, query_ids: Sequence[str]) -> bool:
        """Whether every query has one."""
        return all(kind in self._payloads.get(query_id, ()) for query_id in query_ids)

    def get(self, schema: type[AnyPayload], query_id: str) -> AnyPayload:
        return schema.read(self._payload(schema.kind, query_id), query_id)

    def spec(self, query_id: str) -> EditSpec:
        try:
            return EditSpec.from_dict(dict(self._payload(SPEC, query_id)))
        except BadInput as error:
            raise BadInput(f"the spec record of query {query_id!r} cannot be used: {error}") from None

    def _payload(self, kind: str, query_id: str) -> Mapping[str, Any]:
        try:
            return self._payloads[query_id][kind]
        except KeyError:
            failure = self._failures.get(query_id, {}).get(kind)
            what = f"its making failed ({failure})" if failure else f"make it with tapr factorize --for {kind}"
            raise BadInput(f"query {query_id!r} has no {kind} record: {what}") from None


def _joined(
    one: Mapping[str, Mapping[str, AnyValue]], two: Mapping[str, Mapping[str, AnyValue]]
) -> dict[str, Mapping[str, AnyValue]]:
    """query id -> kind -> value, of both"""
    return {query_id: {**one.get(query_id, {}), **two.get(query_id, {})} for query_id in {**one, **two}}


class _Matches:
    """Which queries a record answers, and a count of the records that answer none, by reason."""

    def __init__(self, queries: Sequence[Asked], pictures: Mapping[str, str]) -> None:
        self._pictures = pictures
        self._by_id = {query.id: query for query in queries}
        self._by_pair: dict[tuple[str | None, str], list[str]] = {}
        for query in queries:
            self._by_pair.setdefault((pictures.get(query.reference), plain(query.edit)), []).append(query.id)
        self._seen = 0
        self._unmatched: Counter[str] = Counter()
        self._by_id_alone = 0

    def queries_of(self, record: Record) -> Sequence[str]:
        self._seen += 1
        if record.id is None:
            found = self._by_pair.get(((record.image or "").lower(), plain(record.edit or "")), [])
            if not found:
                self._unmatched["the picture and edit of no query"] += 1
            return found
        query = self._by_id.get(record.id)
        if query is None:
            self._unmatched["the id of no query"] += 1
            return ()
        differs = record.differs_from(query.edit, self._pictures.get(query.reference))
        if differs is not None:
            self._unmatched[f"the id of a query but another {differs}"] += 1
            return ()
        self._by_id_alone += record.edit is None and record.image is None
        return (query.id,)

    def sentence(self) -> str:
        """ "" when every record answers a query."""
        if not self._unmatched:
            return ""
        return f"{self._unmatched.total():,} of {self._seen:,} records answer no query of this run: {self.reasons()}"

    def reasons(self) -> str:
        return ", ".join(f"{count:,} have {reason}" for reason, count in self._unmatched.most_common())

    def warning(self) -> str:
        if not self._by_id_alone:
            return ""
        return f"{self._by_id_alone:,} records name neither edit nor picture and were matched by their query's id alone"
