"""Counts the queries that a method has usable records for, and refuses too few.

Queries without a record are ranked by the edit alone. A table with a few of them says so. Below half, the row would
mostly be that of Edit only, and it is not made. Submissions, grids of weights and the paper's tables are read without
their notes: they need every record. `--coverage SHARE` accepts less, and names how much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tapr.errors import BadInput
from tapr.evaluate.fallback import BLANK
from tapr.methods import Method, RecordSet
from tapr.methods.base import QueryLike
from tapr.methods.record_kinds import unusable_records

if TYPE_CHECKING:
    from tapr.evaluate.run_files import StoredRun

FOR_A_ROW = 0.5  # share of the queries below which a method has no row
WHOLE = 1.0


def too_few(method: Method, queries: Sequence[QueryLike], records: RecordSet, needed: float) -> str:
    """Why a method's records do not suffice; "" when they do. A blank edit needs no record."""
    broken = unusable_records(method, queries, records)
    if queries and len(broken) == len(queries):
        return f"none of the {len(queries):,} queries has what it needs: {broken[queries[0].id]}"
    lost = [query.id for query in queries if query.id in broken and query.edit.strip()]
    if not lost or _share(len(lost), len(queries)) >= needed:
        return ""
    return f"{_sentence(len(lost), len(queries))}; such as: {broken[lost[0]]}"


def check_report(runs: Sequence[StoredRun], needed: float) -> None:
    """Refuses runs in which a method has too few records for the paper's tables."""
    for run in runs:
        for name, found in run.metrics.get("fallbacks", {}).items():
            lost, queries = len(lacking_in(found["queries"])), int(run.config["queries"])
            if lost and _share(lost, queries) < needed:
                raise BadInput(f"the method {name} of {str(run.folder)!r}: {_sentence(lost, queries)}")


def lacking_in(without: Mapping[str, str]) -> dict[str, str]:
    """The queries without a usable record, those with a blank edit left out."""
    return {query_id: reason for query_id, reason in without.items() if reason != BLANK}


def _share(lost: int, queries: int) -> float:
    return 1 - lost / queries


def _sentence(lost: int, queries: int) -> str:
    share = math.floor(1000 * _share(lost, queries)) / 1000  # not more than there is
    return (
        f"only {queries - lost:,} of {queries:,} queries have usable records ({100 * _share(lost, queries):.1f} %): "
        f"make the others with tapr factorize, or accept it with --coverage {share:g}"
    )
