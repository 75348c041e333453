"""Published figures, shown beside ours: the paper's and those of later systems, each with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from tapr.evaluate.datasets.registry import row_of

_MODELS = {"ViT-B": "ViT-B-32", "ViT-L": "ViT-L-14", "ViT-G": "ViT-bigG-14"}
SIZES = tuple(_MODELS)


@cache
def published() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files("tapr.evaluate").joinpath("data/published.json").read_bytes())
    return loaded


def size_of(encoder: str) -> str | None:
    """Return the published tables' name for an encoder's size."""
    return next((size for size, model in _MODELS.items() if model in encoder), None)


def method_rows(dataset: str, split: str, size: str | None) -> list[dict[str, Any]]:
    """Return the rows for this dataset, split and size of encoder; the paper's come first.

    A row has "label", "source", "multi_pass", "figures" (metric -> percent) and perhaps "groups".
    """
    wanted = {"dataset": dataset, "split": split, "encoder": size}
    row = row_of(dataset)
    known = (*published()["methods"], *(row.published if row is not None else ()))
    return [dict(figures) for figures in known if figures.items() >= wanted.items()]


def control_figure(kind: str, name: str, dataset: str, metric: str, encoder: str = "ViT-L-14") -> float | None:
    """Return the paper's figure of one of its "controls" or "gains": ViT-L, validation splits."""
    figures: Mapping[str, Any] = published()[kind].get(name, {})
    value = figures.get(dataset, {}).get(metric) if size_of(encoder) == "ViT-L" else None
    return None if value is None else float(value)


def source_notes(rows: list[dict[str, Any]]) -> list[str]:
    """Return where the published rows come from."""
    sources = dict.fromkeys(row["source"] for row in rows)
    return [f"{name}: {where}." for name, where in published()["sources"].items() if name in sources]
