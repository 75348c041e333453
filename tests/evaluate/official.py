"""The benchmarks' official annotation files, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest


def official(name: str) -> Path:
    """The folder of a benchmark; the test is skipped where it is absent."""
    for parent in Path(__file__).parents:
        for folder in (parent / "shared" / "data" / "annotations" / name, parent / "data" / name):
            if folder.is_dir():
                return folder
    pytest.skip(f"the official annotations of {name} are not here")
