"""The table of model files: what it says of the shipped ones is true, and nothing is missing from it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import tapr
from tapr.encoders import registry
from tapr.encoders.clip_weights import GRAPHS
from tapr.encoders.model_files import FETCHED, SHIPPED, ShippedFile, rows
from tapr.encoders.onnx_session import PROBE


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.path.name)
def test_a_shipped_file_is_the_recorded_one(file: ShippedFile) -> None:
    data = file.path.read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


def test_every_shipped_model_and_every_fetched_file_has_its_row() -> None:
    package = Path(tapr.__file__).parent
    shipped = {path for path in package.rglob("*") if path.suffix in (".onnx", ".safetensors", ".npz", ".gguf")}
    without_weights = {PROBE, *GRAPHS.glob("*.onnx")}  # tests/encoders/test_image_tower.py builds them again
    assert shipped - without_weights <= {file.path for file in SHIPPED}
    assert {file for known in registry.known_models() for file in known.files} <= set(FETCHED)


def test_every_row_says_all() -> None:
    for row in rows():
        assert len(row["sha256"]) == 64
        assert row["bytes"] > 0
        assert all(row[key] for key in ("name", "path", "licence", "source", "second_source"))
