"""Benchmarks by name."""

from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.datasets.registry import DATASETS, load_dataset
from tapr.evaluate.datasets.row import DatasetRow, PaperRows

__all__ = ["DATASETS", "Dataset", "DatasetRow", "PaperRows", "Part", "Query", "load_dataset"]
