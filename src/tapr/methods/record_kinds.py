"""Kinds of records: what each must hold, and which queries' records a method cannot use."""

from __future__ import annotations

from collections.abc import Sequence

from tapr.errors import BadInput
from tapr.methods.base import Method, QueryLike
from tapr.methods.records import Payload, RecordSet
from tapr.methods.registry import METHODS


def schemas() -> dict[str, type[Payload]]:
    """The schema of every kind but `spec`, whose schema is EditSpec. If two methods name a kind, the first counts."""
    found: dict[str, type[Payload]] = {}
    for _, method in METHODS.working():
        for record in method.records:
            found.setdefault(record.kind, record)
    return found


def unusable(method: Method, queries: Sequence[QueryLike], records: RecordSet) -> dict[str, str]:
    """Query id -> why the method cannot use its records: missing, failed, wrong, or unlike all the others."""
    found: dict[str, str] = {}
    for query in queries:
        try:
            if method.reads_spec:
                records.spec(query.id)
            for record in method.records:
                records.get(record, query.id)
        except BadInput as error:
            found[query.id] = str(error)
    return found | method.misfits([query for query in queries if query.id not in found], records)
