"""Benchmarks by name."""

from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.datasets.registry import DATASETS, load_dataset
from tapr.evaluate.datasets.row import DatasetRow

__all__ = ["DATASETS", "Dataset", "DatasetRow", "Part", "Query", "load_dataset"]
