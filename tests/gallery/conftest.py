"""A gallery of many small shards, and a copy of it as it was."""

import shutil
from pathlib import Path

import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tests.gallery.damaged import PAIRS
from tests.pictures import write_flags


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows per shard, 4 rows per checksum of local vectors, 32 of global ones."""
    monkeypatch.setattr("tapr.store.layout.SHARD_BYTES", 9 * 32 * 2 * 16)
    monkeypatch.setattr("tapr.store.checksums.CHUNK_BYTES", 9 * 32 * 2 * 4)


@pytest.fixture
def built(tmp_path: Path, small_shards: None) -> Path:
    write_flags(tmp_path / "p", PAIRS)
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    shutil.copytree(tmp_path / "g", tmp_path / "whole")
    return tmp_path / "g"
