"""The agreement of two submissions: the pictures that both rank among the first k of a query."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.submit import read_predictions
from tapr.evaluate.table import Row, Table

CUTS = (1, 3, 5, 10, 25, 50)


def overlap(first: Path, second: Path, dataset: Dataset) -> Table:
    """Return a row per k: how many percent of the first k both have, and in how many percent of queries none."""
    one, other = read_predictions(first, dataset), read_predictions(second, dataset)
    shortest = min(len(names) for lists in (one, other) for names in lists.values())
    rows: list[Row] = []
    for k in (cut for cut in CUTS if cut <= shortest):
        common = np.array([len({*one[query][:k]} & {*other[query][:k]}) / k for query in one])
        shared, none = 100 * float(common.mean()), 100 * float((common == 0).mean())
        rows.append({"k": str(k), "in both, %": shared, "queries with none in both, %": none})
    where = f"{dataset.protocol.dataset} {dataset.protocol.split}"
    note = f"{where}, {len(one):,} queries: {first.name} and {second.name}."
    return Table("overlap", "Overlap of two rankings", tuple(rows), (note,))
