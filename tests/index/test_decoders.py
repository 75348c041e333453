"""Encoders that take bulks give the same bank, in the same order, and report what goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tapr import Gallery
from tapr.encoders.base import BulkEncoder, Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.errors import TaprError
from tapr.images.frame import Frame
from tapr.index import encode
from tapr.utils.progress import NoProgress


class Bulk(FakeEncoder):
    """Takes five pictures at once, as a GPU takes 256."""

    bulk = 5
    frame = Frame(32)

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def encode_bulk(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        self.sizes.append(len(prepared))
        found = self.encode_images(prepared)
        stored: Any = (found.global_vectors.astype(np.float16), found.local_vectors.astype(np.float16))
        return Evidence(*stored)


def write_pictures(folder: Path) -> None:
    """37 files: some of the same content, near and far from each other, one broken, one empty."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(35):
        if i in (7, 8, 30):
            (folder / f"{i:02d}.png").write_bytes((folder / "06.png").read_bytes())
        else:
            Image.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)).save(folder / f"{i:02d}.png")
    (folder / "11a.png").write_bytes(b"no picture")
    (folder / "11b.png").write_bytes(b"")


def test_the_bank_is_that_of_an_encoder_without_bulks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "p")
    encoder = Bulk()
    assert isinstance(encoder, BulkEncoder)
    assert not isinstance(FakeEncoder(), BulkEncoder)
    monkeypatch.setenv("TAPR_THREADS", "2")
    said: list[str] = []

    class Told(NoProgress):
        def say(self, sentence: str) -> None:
            said.append(sentence)

    bulk = Gallery.build(tmp_path / "bulk", tmp_path / "p", encoder, progress=Told())
    plain = Gallery.build(tmp_path / "plain", tmp_path / "p", FakeEncoder())
    assert bulk.report is not None
    assert plain.report is not None
    assert (bulk.report.encoded, bulk.report.shared) == (plain.report.encoded, plain.report.shared) == (32, 3)
    assert len(bulk.report.failures) == 2
    assert bulk.report.failures == plain.report.failures
    assert encoder.sizes == [5, 5] + [5] * 6 + [2]  # two of blank pictures, for the time it will take
    assert any("seconds for the encoder" in sentence for sentence in said)
    np.testing.assert_array_equal(bulk.rows, plain.rows)
    for one, other in zip(bulk.blocks(), plain.blocks(), strict=True):
        np.testing.assert_array_equal(one.global_vectors, other.global_vectors)
        assert one.local_vectors is not None
        np.testing.assert_array_equal(one.local_vectors, other.local_vectors)


def test_what_the_encoder_raises_ends_the_run_and_what_was_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pictures(tmp_path / "p")
    monkeypatch.setattr(encode, "COMMIT_SECONDS", 0.0)

    class Failing(Bulk):
        def encode_bulk(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
            if len(self.sizes) == 6:
                raise TaprError("the card is gone")
            return super().encode_bulk(prepared)

    with pytest.raises(TaprError, match="the card is gone"):
        Gallery.build(tmp_path / "g", tmp_path / "p", Failing())
    encoder = Bulk()
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", encoder)
    assert sum(encoder.sizes) < 32
    whole = Gallery.build(tmp_path / "whole", tmp_path / "p", FakeEncoder())
    assert len(gallery) == len(whole)
    ids = [entry.id for entry in whole.entries(range(len(whole)))]
    assert [entry.id for entry in gallery.entries(range(len(gallery)))] == ids
