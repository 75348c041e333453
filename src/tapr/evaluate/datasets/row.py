"""The row of a dataset: its name and help, its loader and its splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapr.evaluate.datasets.base import Dataset

# the benchmark's folder, the split and the gallery protocol; None: the dataset's own default
Load = Callable[[Path, str | None, str | None], Dataset]


@dataclass(frozen=True)
class DatasetRow:
    """One benchmark. A module of this folder lists its own in `ROWS`; another package, by an entry point."""

    name: str  # as in `tapr eval NAME`
    help: str
    load: Load
    titles: tuple[str, ...] = ()  # what its protocols call it
    splits: str = ""  # for the help of --split
    order: int = 50
    # a split that is reported on -> the one that its constants are chosen on
    development: Mapping[str, str] = field(default_factory=dict)
    needs_data: bool = True  # False: there is nothing to download, and --data is not asked for
    galleries: tuple[str, ...] = ()  # gallery protocols, where there is more than one
    published: tuple[Mapping[str, Any], ...] = ()  # rows of figures as in evaluate/data/published.json
