"""How heat maps show cosines: on a scale that the gallery gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tapr
from tapr import EditSpec, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.explain import heatmap as explain
from tapr.explain.calibration import Scale
from tapr.query.factors import BY_NAME
from tapr.score.compile import Term
from tests.pictures import write_flags

SCALE = Scale(zero=0.2, sure=0.3)
FLAGS = [("red", "white"), ("green", "blue"), ("yellow", "black"), ("purple", "orange"), ("blue", "white", "red")]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    folder = tmp_path_factory.mktemp("finding")
    write_flags(folder / "p", FLAGS)
    return Gallery.build(folder / "g", folder / "p", FakeEncoder())


def test_strength_follows_the_scale() -> None:
    np.testing.assert_allclose(SCALE.strength(np.array([-1.0, 0.2, 0.325, 0.45, 0.9])), [0, 0, 0.5, 1, 1])


def test_the_scale_is_of_the_gallery_and_the_same_for_every_part_of_it(gallery: Gallery) -> None:
    scale = Scale.of(gallery)
    assert scale.zero <= scale.sure <= scale.full
    assert Scale.of(gallery.select("width > 0")) == scale == Scale.of(Gallery.open(gallery.path, encoder=FakeEncoder()))


def test_an_empty_gallery_has_a_scale(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    write_flags(tmp_path / "p", [("red",)])
    empty = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder()).select("width > 100000")
    assert np.isfinite(Scale.of(empty).full)


def test_peaks_are_the_best_cosines_of_atoms_alone(gallery: Gallery) -> None:
    spec = EditSpec("a flag", add=["blue"], remove=["yellow"])
    ranking = tapr.search(gallery, "red-white.png", spec=spec, k=4)
    for hit in ranking.hits:
        peaks = {(part.factor, part.text): part.peak for part in hit.contributions}
        heats = explain.heat_of(ranking.query, gallery, gallery.position_of(hit.id))
        for heat in heats:
            peak = peaks[heat.term.factor, heat.term.text]
            if heat.cosines is None:
                assert peak is None, "the reference is no phrase"
            else:
                assert peak == pytest.approx(float(heat.cosines.max()), abs=1e-6)
        assert peaks["target", "a flag"] is None
    assert [part["peak"] for part in ranking.to_dict()["hits"][0]["contributions"]].count(None) == 3


def strength(overlay: Image.Image, colour: tuple[int, int, int]) -> int:
    """How much of the colour lies anywhere on it."""
    pixels = np.asarray(overlay, np.int16)
    return int(pixels[(pixels[..., :3] == colour).all(axis=-1), 3].max(initial=0))


def test_what_is_not_found_leaves_a_picture_nearly_clean_and_what_is_found_is_ringed() -> None:
    card = FakeEncoder().card
    where = Term("remove", "sofa", "local", 0, 1)
    absent = explain.Heat(where, np.full(card.grid, -0.1), np.full(card.grid, 0.21))
    there = explain.Heat(where, np.full(card.grid, -0.1), np.where(np.eye(card.grid[0]) > 0, 0.5, 0.1))
    colour = BY_NAME["remove"].colour
    faint, strong, unsure = (
        explain.overlay(heat, SCALE, 1.0, (90, 90), card, is_found=is_found)
        for heat, is_found in ((absent, False), (there, True), (there, False))
    )
    assert strength(faint, colour) < 16
    assert strength(strong, colour) > 200
    assert strength(faint, (255, 255, 255)) == 0, "no line where nothing is surely found"
    assert strength(strong, (255, 255, 255)) == 255
    assert strength(unsure, (255, 255, 255)) == 0, "strong evidence alone is no claim"


def test_edges_that_the_encoder_does_not_see_are_veiled() -> None:
    card = FakeEncoder().card
    veil = np.asarray(explain.unseen((60, 20), card))[..., 3]
    assert veil[:, :19].min() > 0
    assert veil[:, 21:39].max() == 0
    assert np.asarray(explain.unseen((20, 20), card))[..., 3].max() == 0
