"""Benchmarks by name."""

from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.datasets.registry import DATASETS, load_dataset

__all__ = ["DATASETS", "Dataset", "Part", "Query", "load_dataset"]
