"""Which pictures of a ranking are shown as one."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import tapr
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.options import RankOptions
from tapr.search.near_duplicates import NEAR_DUPLICATE, first_near_duplicates, usual
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.refusals import refused


def turned(*degrees: float) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_near_duplicates_join_the_first_shown_picture_and_do_not_chain() -> None:
    cosine = float(np.cos(np.deg2rad(10)))
    vectors = turned(0, 90, 8, 16, 24, 97)
    assert first_near_duplicates(vectors, list("abcdef"), cosine) == [None, None, 0, None, 3, 1]


def test_equal_files_are_alike_whatever_their_vectors() -> None:
    assert first_near_duplicates(turned(0, 90, 180), ["x", "y", "x"], 0.99) == [None, None, 0]


def test_equal_vectors_are_alike_at_cosine_1() -> None:
    vectors = np.random.default_rng(0).normal(size=(1, 512)).repeat(3, axis=0).astype(np.float16)
    assert first_near_duplicates(vectors, list("abc"), 1.0) == [None, 0, 0]


@pytest.mark.parametrize("cosine", [0, -0.5, 1.01, float("nan"), True])
def test_what_is_no_cosine_is_refused(cosine: float) -> None:
    with refused("bad_option", option="near_duplicates"):
        RankOptions.of(near_duplicates=cosine)


def test_a_long_ranking_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    monkeypatch.setattr(importlib.import_module("tapr.search.answer"), "MAX_PLACES", 3)
    assert tapr.search(gallery, text="red", k=2, offset=1, near_duplicates=0.9).hits
    with refused("bad_option", option="near_duplicates"):
        tapr.search(gallery, text="red", k=3, offset=1, near_duplicates=0.9)


def test_the_threshold_for_near_duplicates_depends_on_the_gallery(tmp_path: Path) -> None:
    for number, colours in enumerate((("red",), ("green",), ("blue",), ("yellow", "black"))):
        flag(*colours, size=(32, 32)).save(tmp_path / f"{number}.png")
        flag(*colours, size=(32, 32)).save(tmp_path / f"{number}.bmp")  # copies tell nothing
    far = Gallery.build(tmp_path / "far", tmp_path, FakeEncoder())
    assert usual(far) == NEAR_DUPLICATE
    near = tmp_path / "near"
    near.mkdir()
    for number in range(9):
        picture = flag("red", size=(90, 90))
        picture.paste((0, 0, 255), (0, 0, 5 * number, 90))
        picture.save(near / f"{number}.png")
    assert NEAR_DUPLICATE < usual(Gallery.build(tmp_path / "bank", near, FakeEncoder())) < 1
