"""Kinds of records: their schemas, and which records a method cannot use."""

from __future__ import annotations

from collections.abc import Sequence

from tapr.errors import BadInput
from tapr.methods.base import Method, QueryLike
from tapr.methods.records import Payload, RecordSet
from tapr.methods.registry import METHODS


def schemas() -> dict[str, type[Payload]]:
    """The schema of every kind except `spec`, which is EditSpec. If two methods define a kind, the first one counts."""
    found: dict[str, type[Payload]] = {}
    for _, method in METHODS.working():
        for record in method.records:
            found.setdefault(record.kind, record)
    return found


def unusable_records(method: Method, queries: Sequence[QueryLike], records: RecordSet) -> dict[str, str]:
    """Query id -> why the method cannot use its records: missing, failed, invalid, or inconsistent with the others."""
    found: dict[str, str] = {}
    for query in queries:
        try:
            if method.reads_spec:
                records.spec(query.id)
            for record in method.records:
                records.get(record, query.id)
        except BadInput as error:
            found[query.id] = str(error)
    return found | method.inconsistent_records([query for query in queries if query.id not in found], records)
