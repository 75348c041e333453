"""Exports a split's queries in the format of `tapr factorize --batch`. Blank edits are included, because record files
are matched by query id.
"""

from __future__ import annotations

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.factorize.queries import BatchQuery

_SHOWN = 5


def export_of(dataset: Dataset, limit: int | None = None, allow_missing: bool = False) -> list[BatchQuery]:
    """Only the reference pictures must exist: a language model sees no other picture."""
    if limit is not None:
        dataset = dataset.limited(limit)
    protocol = dataset.protocol
    references = dict.fromkeys(query.reference for query in dataset.queries)
    missing = [name for name in references if not dataset.pictures[name].is_file()]
    if missing and not allow_missing:
        listed = ", ".join(str(dataset.pictures[name]) for name in missing[:_SHOWN])
        raise BadInput(
            f"{len(missing):,} of {len(references):,} references are missing, such as {listed}: "
            "complete the folder, or export the queries whose references are there with --allow-missing"
        )
    lost = set(missing)
    kept = [query for query in dataset.queries if query.reference not in lost]
    if not kept:
        raise BadInput("no query has its reference: complete the folder of pictures")
    return [
        BatchQuery(query.id, dataset.pictures[query.reference], query.edit, protocol.dataset, protocol.split)
        for query in kept
    ]
