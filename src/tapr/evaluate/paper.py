"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

# this run's metric -> the paper's column
_COLUMNS = {
    "CIRCO": {"mAP@5": "circo_map5", "mAP@10": "circo_map10", "mAP@25": "circo_map25", "mAP@50": "circo_map50"},
    "CIRR": {
        "R@1": "cirr_r1", "R@5": "cirr_r5", "R@10": "cirr_r10",
        "Rsubset@1": "cirr_sub1", "Rsubset@2": "cirr_sub2", "Rsubset@3": "cirr_sub3",
    },
    "FashionIQ": {"R@10": "avg_r10", "R@50": "avg_r50"},
}  # fmt: skip
_MATCHED = {
    "global, shared read": ("global", False),
    "global, factor-wise": ("global", True),
    "global + local, shared read": ("global+local", False),
    "Full TAPR": ("global+local", True),
}
_VALIDATION = {"CIRCO": "circo_map5", "CIRR": "cirr_r1", "FashionIQ": "fiq_r10"}


@cache
def results() -> dict[str, Any]:
    text = files("tapr.evaluate").joinpath("data/paper_results.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def backbone(encoder: str) -> str | None:
    """The paper's name for an encoder's size."""
    sizes = {"ViT-B": "ViT-B-32", "ViT-L": "ViT-L-14", "ViT-G": "ViT-bigG-14"}
    return next((name for name, model in sizes.items() if model in encoder), None)


def method_figures(dataset: str, split: str, label: str, encoder: str) -> dict[str, float]:
    """metric -> the paper's value for the same method, dataset and size of encoder; empty when it has none.

    The paper's CIRCO and CIRR tables are on the test splits, its FashionIQ table on val.
    """
    table = {
        ("CIRCO", "test"): "circo_cirr_test",
        ("CIRR", "test1"): "circo_cirr_test",
        ("FashionIQ", "val"): "fashioniq_val",
    }
    rows = results().get(table.get((dataset, split), ""), [])
    size = backbone(encoder)
    row: dict[str, Any] = next((row for row in rows if row["method"] == label and row["backbone"] == size), {})
    return {metric: row[column] for metric, column in _COLUMNS.get(dataset, {}).items() if column in row}


def control_figure(dataset: str, split: str, name: str, encoder: str) -> float | None:
    """The paper's ViT-L validation figure of a control, on its one metric a dataset."""
    column = _VALIDATION.get(dataset)
    if column is None or split != "val" or backbone(encoder) != "ViT-L":
        return None
    for row in results()["matched_control_vitl_val"]:
        if (row["evidence"], row["factor_wise"]) == _MATCHED.get(name):
            return float(row[column])
    for table in ("factor_ablation_vitl_val", "operator_ablation_vitl_val"):
        for row in results()[table]:
            if row["variant"] == name:
                return float(row[column])
    return None
