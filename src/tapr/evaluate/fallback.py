"""The fallback for queries that a method cannot answer because the record is missing, failed or invalid, or the edit is
blank.

Such a query stays in every mean, since a method must not gain by skipping it. It is ranked by its edit alone, like the
baseline "Edit only". If the edit is blank, it is ranked by its reference alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tapr.evaluate.datasets.base import Dataset, Query
from tapr.methods import Features, Method, RecordSet
from tapr.methods.baselines import ImageOnly, TextOnly
from tapr.methods.record_kinds import unusable_records
from tapr.types import Float32

BLANK = "its edit is blank"
NO_RECORDS = RecordSet({}, "none")
_SHOWN = 5


def unanswerable(method: Method, queries: Sequence[Query], records: RecordSet) -> dict[str, str]:
    """Query id -> why the method cannot answer it. A query with a blank edit is fine if it has a record."""
    found = unusable_records(method, queries, records)
    blank = {query.id: BLANK for query in queries if is_blank(query) and (query.id in found or not method.kinds)}
    return found | blank


def scores(
    method: Method, queries: Sequence[Query], records: RecordSet, features: Features, without: Mapping[str, str]
) -> Float32:
    """The method's scores, (Q, N); for queries in `without`, the fallback's."""
    asked = [place for place, query in enumerate(queries) if query.id not in without]
    if len(asked) == len(queries):
        return method.score(queries, records, features)
    found = fallback_scores(queries, features)
    if asked:
        found[asked] = method.score([queries[place] for place in asked], records, features)
    return found


def fallback_scores(queries: Sequence[Query], features: Features) -> Float32:
    """(Q, N)"""
    found = np.empty((len(queries), len(features.bank)), np.float32)
    for blank, method in ((False, TextOnly()), (True, ImageOnly())):
        places = [place for place, query in enumerate(queries) if is_blank(query) is blank]
        if places:
            found[places] = method.score([queries[place] for place in places], NO_RECORDS, features)
    return found


def is_blank(query: Query) -> bool:
    return not query.edit.strip()


def blank_note(dataset: Dataset) -> tuple[str, ...]:
    """A note for tables if some edits are blank. One query of CIRR's test1 is."""
    blank = [query.id for query in dataset.queries if is_blank(query)]
    if not blank:
        return ()
    return (
        f"the edit of {_count(len(blank), 'query')} is blank ({some(blank)}): methods that have no record for it rank "
        "by the reference alone",
    )


def fallback_notes(without: Mapping[str, Mapping[str, str]], queries: int) -> list[str]:
    """Sentences for a table, of label -> query id -> reason; methods that lack the same queries share one.

    None where nothing but blank edits stood in the way.
    """
    together: dict[tuple[str, ...], dict[str, str]] = {}  # queries -> label -> the first reason
    for label, reasons in without.items():
        named = {query_id: reason for query_id, reason in reasons.items() if reason != BLANK}
        if named:
            together.setdefault(tuple(named), {})[label] = next(iter(named.values()))
    return [
        f"{'; '.join(labels)}: {len(ids):,} of {queries:,} queries ({some(ids)}) are ranked by the edit alone, because "
        f"their records cannot be used, such as: {next(iter(labels.values()))}"
        for ids, labels in together.items()
    ]


def some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun.removesuffix('y')}ies"
