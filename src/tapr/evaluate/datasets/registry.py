"""Benchmarks by name."""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets import circo, cirr, emoji, fashioniq, jsonl, lasco
from tapr.evaluate.datasets.base import Dataset

DATASETS = ("circo", "cirr", "fashioniq", "lasco", "emoji", "jsonl")


def load_dataset(
    name: str, data: Path | None = None, split: str | None = None, gallery_protocol: str | None = None
) -> Dataset:
    if name == "emoji":
        return emoji.load(split)
    if name not in DATASETS:
        raise BadInput(f"unknown dataset {name!r}: choose {', '.join(DATASETS)}")
    if data is None:
        raise BadInput(f"{name} needs its annotations: give their folder with --data")
    if not data.exists():
        raise BadInput(f"there is no folder {str(data)!r}: give --data the benchmark's own folder")
    if gallery_protocol and name != "fashioniq":
        raise BadInput("only fashioniq has two gallery protocols: leave --gallery-protocol out")
    if name == "fashioniq":
        return fashioniq.load(data, split, gallery_protocol)
    loaders = {"circo": circo.load, "cirr": cirr.load, "lasco": lasco.load, "jsonl": jsonl.load}
    return loaders[name](data, split)
