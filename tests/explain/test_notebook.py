"""Answers in a notebook."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tapr
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.refusals import refused


@pytest.fixture
def ranking(tmp_path: Path) -> tapr.Ranking:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    return tapr.search(gallery, spec=tapr.EditSpec("a <b>red</b> picture", ["red"]), k=3)


def test_a_notebook_shows_thumbnails_and_escapes_words(ranking: tapr.Ranking) -> None:
    html = ranking._repr_html_()
    assert html.count("<img ") == html.count("data:image/jpeg;base64,") == 3
    assert "<b>" not in html
    assert len(repr(ranking)) < 200


def test_a_hit_opens_its_picture(ranking: tapr.Ranking) -> None:
    assert ranking.hits[0].image().size == (48, 48)
    with refused("bad_input"):
        tapr.Hit(1, "far.png", 0.5).image()


def test_without_pandas_the_sentence_says_what_to_install(
    ranking: tapr.Ranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused("bad_input", "pip install pandas"):
        ranking.to_pandas()


def test_a_row_per_hit(ranking: tapr.Ranking) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = ranking.to_pandas()
    assert list(table["id"]) == [hit.id for hit in ranking.hits]


def test_an_array_is_a_reference(ranking: tapr.Ranking) -> None:
    image = flag("red", "white")
    by_array = tapr.search(ranking.gallery, like=np.asarray(image))
    by_image = tapr.search(ranking.gallery, like=image)
    assert [hit.score for hit in by_array.hits] == [hit.score for hit in by_image.hits]
    for wrong in (np.zeros((4, 4)), np.zeros((4, 4, 2), np.uint8), np.zeros((0, 4), np.uint8)):
        with refused("bad_input", "array"):
            tapr.search(ranking.gallery, like=wrong)


def test_dir_lists_the_public_names() -> None:
    assert set(tapr.__all__) <= set(dir(tapr))


def test_camera_raw_files_are_named_as_such(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    for name in ("a.CR2", "b.nef", "Thumbs.db"):
        (tmp_path / "p" / name).write_bytes(b"x")
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    assert done.code == 0
    assert "2 files skipped (camera raw" in done.out
    assert "Thumbs.db" in done.out
