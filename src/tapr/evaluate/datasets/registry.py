"""Benchmarks by name."""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.datasets.row import DatasetRow
from tapr.plugins import Registry

DATASETS: Registry[DatasetRow] = Registry(
    "dataset",
    "tapr.evaluate.datasets",
    "tapr.datasets",
    name_of=lambda row: row.name,
    order_of=lambda row: row.order,
    is_row=lambda offered: isinstance(offered, DatasetRow),
)


def load_dataset(
    name: str, data: Path | None = None, split: str | None = None, gallery_protocol: str | None = None
) -> Dataset:
    row = DATASETS[name]
    if data is None and row.needs_data:
        raise BadInput(f"{name} needs its annotations: give their folder with --data")
    if data is not None and row.needs_data and not data.exists():
        raise BadInput(f"there is no folder {str(data)!r}: give --data the benchmark's own folder")
    if gallery_protocol and not row.galleries:
        several = [other for other, one in DATASETS.working() if one.galleries]
        raise BadInput(f"only {', '.join(several)} has two gallery protocols: leave --gallery-protocol out")
    return row.load(data or Path(), split, gallery_protocol)


def row_of(title: str) -> DatasetRow | None:
    """The row of a protocol's dataset; None where no dataset calls itself so, such as a folder of one's own."""
    return next((row for _, row in DATASETS.working() if title in row.titles), None)
