"""The numbers published in the paper, shown beside ours. Each dataset's file says which of them apply."""

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
    """Metric -> the paper's value for the same method, dataset and encoder size; empty if it has none.

    The paper's CIRCO and CIRR tables are on the test splits, its FashionIQ table is on val.
    """
    published = _published(dataset)
    size = backbone(encoder)
    if published is None or published.split != split or size is None:
        return {}
    found = (row for row in published.rows() if row["method"] == label and row["backbone"] == size)
    row = next(found, {})
    return _figures(row, published.columns)


def method_rows(dataset: str, split: str, encoder: str) -> dict[str, dict[str, float]]:
    """Label -> metric -> the paper's value, for every method it lists with this encoder size."""
    published, size = _published(dataset), backbone(encoder)
    if published is None or published.split != split or size is None:
        return {}
    return {row["method"]: _figures(row, published.columns) for row in published.rows() if row["backbone"] == size}


def group_rows(dataset: str, split: str, encoder: str) -> dict[str, dict[str, dict[str, float]]]:
    """Label -> group -> metric -> the paper's value, where it reports groups of queries (such as dress_r10)."""
    published, size = _published(dataset), backbone(encoder)
    if published is None or published.split != split or size is None:
        return {}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in (row for row in published.rows() if row["backbone"] == size):
        for column, value in row.items():
            group, _, metric = column.rpartition("_r")
            if group and metric.isdigit() and column not in published.columns.values():
                found.setdefault(row["method"], {}).setdefault(group, {})[f"R@{metric}"] = float(value)
    return found


def gain_figures(dataset: str, split: str, encoder: str) -> dict[str, float]:
    """Gain -> the paper's points, from its unrounded scores; empty if it has none."""
    published = _published(dataset)
    if published is None or not published.controls or split != "val" or backbone(encoder) != "ViT-L":
        return {}
    return {row["gain"]: float(row[published.controls]) for row in results()["matched_gains_vitl_val"]}


def control_figure(dataset: str, split: str, name: str, encoder: str) -> float | None:
    """The paper's value for a control: ViT-L, validation split, one metric per dataset."""
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


def _figures(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, float]:
    return {metric: float(row[column]) for metric, column in columns.items() if column in row}


def _published(dataset: str) -> PaperRows | None:
    row = row_of(dataset)
    return None if row is None else row.paper
