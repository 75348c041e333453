"""The query side of a method, prepared beforehand: one record a query and kind, checked against the kind's schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tapr.errors import BadInput
from tapr.factorize.records import SPEC, RecordFile
from tapr.spec import EditSpec


class Payload(BaseModel):
    """What a record of one kind holds; a method's file defines its own."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_min_length=1, str_strip_whitespace=True)
    kind: ClassVar[str]

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


class RecordSet:
    """Records by query and kind."""

    def __init__(self, payloads: Mapping[str, Mapping[str, Mapping[str, Any]]], origin: str) -> None:
        self._payloads = payloads  # query id -> kind -> payload
        self.origin = origin  # where they come from, for run files

    @classmethod
    def from_file(cls, path: str | Path) -> RecordSet:
        """Records are found by their query's id; the last one of a kind wins."""
        records, torn = RecordFile(path).read()
        if torn:
            raise BadInput(f"{torn}: complete the records before they are evaluated")
        payloads: dict[str, dict[str, Mapping[str, Any]]] = {}
        for record in records:
            if record.id is not None:
                payloads.setdefault(record.id, {})[record.kind] = record.payload
        makers = sorted({record.maker.model for record in records})
        return cls(payloads, f"{Path(path).name} (made by {', '.join(makers)})")

    def digest(self) -> str:
        canonical = json.dumps(self._payloads, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def has(self, kind: str, query_ids: Sequence[str]) -> bool:
        """Whether every query has one."""
        return all(kind in self._payloads.get(query_id, ()) for query_id in query_ids)

    def lacking(self, kind: str, query_ids: Sequence[str]) -> int:
        return sum(kind not in self._payloads.get(query_id, ()) for query_id in query_ids)

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
            raise BadInput(
                f"query {query_id!r} has no {kind} record: make it with tapr factorize --for {kind}"
            ) from None
