"""The paper's own figures, to stand beside ours. Each dataset's file says which of them are its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from tapr.evaluate.datasets.registry import row_of
from tapr.evaluate.datasets.row import PaperRows

_MATCHED = {
    "global, shared read": ("global", False),
    "global, factor-wise": ("global", True),
    "global + local, shared read": ("global+local", False),
    "Full TAPR": ("global+local", True),
}


@cache
def results() -> dict[str, Any]:
    text = files("tapr.evaluate").joinpath("data/paper_results.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def backbone(encoder: str) -> str | None:
    """The paper's name for an encoder's size."""
    sizes = {"ViT-B": "ViT-B-32", "ViT-L": "ViT-L-14", "ViT-G": "ViT-bigG-14"}
    return next((name for name, model in sizes.items() if model in encoder), None)


def table(name: str) -> Callable[[], Sequence[Mapping[str, Any]]]:
    """Rows of one of the paper's tables, read when they are wanted."""
    return lambda: results()[name]


def method_figures(dataset: str, split: str, label: str, encoder: str) -> dict[str, float]:
    """metric -> the paper's value for the same method, dataset and size of encoder; empty when it has none.

    The paper's CIRCO and CIRR tables are on the test splits, its FashionIQ table on val.
    """
    published = _published(dataset)
    size = backbone(encoder)
    if published is None or published.split != split or size is None:
        return {}
    found = (row for row in published.rows() if row["method"] == label and row["backbone"] == size)
    row = next(found, {})
    return {metric: row[column] for metric, column in published.columns.items() if column in row}


def control_figure(dataset: str, split: str, name: str, encoder: str) -> float | None:
    """The paper's ViT-L validation figure of a control, on its one metric per dataset."""
    published = _published(dataset)
    if published is None or not published.controls or split != "val" or backbone(encoder) != "ViT-L":
        return None
    for row in results()["matched_control_vitl_val"]:
        if (row["evidence"], row["factor_wise"]) == _MATCHED.get(name):
            return float(row[published.controls])
    for wanted in ("factor_ablation_vitl_val", "operator_ablation_vitl_val"):
        for row in results()[wanted]:
            if row["variant"] == name:
                return float(row[published.controls])
    return None


def _published(dataset: str) -> PaperRows | None:
    row = row_of(dataset)
    return None if row is None else row.paper
