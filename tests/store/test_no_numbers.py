"""Vectors and scores that are no numbers, and galleries of next to no pictures."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr import EditSpec, Gallery, TaprError, search
from tapr.encoders.base import Evidence
from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.store.verify import verify
from tests.damaged import put_nan
from tests.pictures import SOME_FLAGS, write_flags

pytestmark = pytest.mark.usefixtures("small_shards")


class Odd(FakeEncoder):
    """Gives a red picture vectors that are no numbers, or too large for fp16; a blue one has patches of length 0."""

    def __init__(self, value: float, where: str) -> None:
        super().__init__()
        self._value, self._where = value, where

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        evidence = super().encode_images(prepared)
        for i, pixels in enumerate(prepared):
            if tuple(pixels[0, 0]) == COLOURS["red"]:
                (evidence.global_vectors if self._where == "global" else evidence.local_vectors[:, 4])[i, 7] = (
                    self._value
                )
            if tuple(pixels[0, 0]) == COLOURS["blue"]:
                evidence.local_vectors[i] = 0
        return evidence


@pytest.mark.parametrize("precision", ["fp16", "int8", "both"])
@pytest.mark.parametrize(("value", "where"), [(np.nan, "global"), (np.inf, "local"), (1e30, "global")])
def test_vectors_that_are_no_numbers_are_that_picture_s_failure(
    tmp_path: Path, value: float, where: str, precision: Any
) -> None:
    write_flags(tmp_path / "p", [("red",), ("blue",), ("green",)])
    shutil.copy(tmp_path / "p" / "red.png", tmp_path / "p" / "red too.png")
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", Odd(value, where), precision)
    assert gallery.ids() == ["blue.png", "green.png"]
    assert {entry.id: entry.failure for entry in gallery.failures()} == dict.fromkeys(
        ["red.png", "red too.png"], "the encoder gave vectors for it that are not finite numbers"
    )
    ranking = search(gallery, tmp_path / "p" / "green.png", spec=EditSpec("blue", ["blue"], remove=["red"]), k=5)
    assert [hit.id for hit in ranking.hits] == ["blue.png"]
    assert np.isfinite(ranking.hits[0].score)


def put_nan_row(path: Path) -> None:
    array = np.load(path, mmap_mode="r+")
    array[1, 5] = np.inf
    array.flush()


def test_a_score_that_is_no_number_is_never_an_empty_answer(built: Path) -> None:
    gallery = Gallery.open(built, encoder=FakeEncoder())
    put_nan(built / "global-0-00000.npy")  # while it is open
    reference = next((built.parent / "p").iterdir())
    with pytest.raises(TaprError, match=r"not a number.*tapr doctor --verify"):
        search(gallery, reference, spec=EditSpec("red"), k=3)


@pytest.mark.parametrize("count", [0, 1])
def test_galleries_of_no_picture_and_of_one(tmp_path: Path, count: int) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "broken.png").write_bytes(b"no picture")
    write_flags(tmp_path / "p", [("red",)][:count])
    (reference,) = write_flags(tmp_path / "q", [("blue",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    assert len(gallery) == count
    assert not verify(tmp_path / "g").damage
    assert Gallery.repair(tmp_path / "g", encoder=FakeEncoder())[1].files == []
    ranking = search(gallery, reference, spec=EditSpec("red", ["red"]), k=3)
    assert (len(ranking.hits), ranking.searched) == (count, count)
    assert all(np.isfinite(hit.score) for hit in ranking.hits)
    write_flags(tmp_path / "p", SOME_FLAGS[:3])
    assert gallery.sync().encoded == 3
