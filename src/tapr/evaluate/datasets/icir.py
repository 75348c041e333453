"""i-CIR: instances, each with a database of its own full of hard negatives; what must be found is instance and text.

The layout of the authors' archive (billpsomas/icir): query_files.csv and database_files.csv with lines of
path,text,instance, and the pictures at these paths. A picture of the database is right for a query of the same
instance and the same text. Their code computes average precision by the trapezoidal rule over the whole ranking.
"""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, find_file
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.utils.lines import lines_of

_METRICS = metrics("tAP@all", "mAP@10", "Hit@1", "Hit@10")


def load(data: Path, split: str | None = None) -> Dataset:
    split = choose_split(split, ("test",), "i-CIR")
    asked, stored = (find_file(data, f"{name}_files.csv") for name in ("query", "database"))
    by_instance: dict[str, list[tuple[str, str]]] = {}  # instance -> (path, text)
    for path, text, instance in _rows(stored):
        by_instance.setdefault(instance, []).append((path, text))
    queries: dict[str, list[Query]] = {}
    for number, (path, text, instance) in enumerate(_rows(asked)):
        right = tuple(dict.fromkeys(name for name, shown in by_instance.get(instance, ()) if shown == text))
        if not right:
            raise BadInput(f"{stored} has no picture of {instance} with {text!r}, which {asked} asks for")
        queries.setdefault(instance, []).append(Query(str(number), path, text, right, groups=(instance,)))
    if not queries:
        raise BadInput(f"{asked} holds no queries")
    parts = tuple(
        Part(instance, tuple(dict.fromkeys(name for name, _ in by_instance[instance])), tuple(queries[instance]))
        for instance in sorted(queries)
    )
    names = dict.fromkeys(name for part in parts for name in (*part.gallery, *(q.reference for q in part.queries)))
    protocol = Protocol(
        dataset="i-CIR",
        split=split,
        gallery=f"a database for each of {len(parts):,} instances, {len(names):,} pictures in all",
        keep_reference=True,
        edit_text="the text as it stands",
        metrics=_METRICS,
        main=Metric.parse("tAP@all"),
        tunable=False,
    )
    return Dataset(protocol, parts, {name: data / name for name in names}, (asked, stored))


def _rows(path: Path) -> list[tuple[str, str, str]]:
    """(path, text, instance); the authors' code cuts a line at its commas, and so do we."""
    rows = []
    for number, line in enumerate(lines_of(path.read_text(encoding="utf-8")), 1):
        fields = line.strip().split(",")
        if len(fields) < 3:
            raise BadInput(f"{path}, line {number}: a line is path,text,instance")
        rows.append((fields[0], fields[1], fields[2]))
    return rows


ROWS = (
    DatasetRow(
        "icir",
        "i-CIR: instances with hard negatives; average precision in each instance's own database.",
        lambda data, split, gallery: load(data, split),
        titles=("i-CIR",),
        splits="test.",
        order=50,
    ),
)
