from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import tapr
from tapr import EditSpec, Gallery
from tapr.encoders.base import EncoderCard
from tapr.encoders.fake import FakeEncoder
from tapr.explain.heatmap import combined, heat_of, render, render_signed, ringed, strongest
from tests.pictures import write_flags

SQUARE = EncoderCard("x", "", 4, (2, 2), "tokens", 32, "crop")
PADDED = EncoderCard("x", "", 4, (2, 2), "tokens", 32, "pad")


def test_heat_lies_where_the_colour_is_and_sums_to_the_contribution(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red", "white", "blue"), ("green",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    ranking = tapr.search(gallery, "green.png", spec=EditSpec("a flag", ["blue"], remove=["red"]), k=1)
    heats = {
        heat.term.text: heat.values for heat in heat_of(ranking.query, gallery, gallery.position_of(ranking.hits[0].id))
    }
    assert heats["blue"].sum(axis=0).argmax() == 2  # the right-hand column
    assert heats["red"].sum(axis=0).argmin() == 0  # Remove is negative, on the left
    placed = [part for part in ranking.hits[0].contributions if part.text in heats]
    assert {part.factor for part in placed} == {"add", "continuity", "remove"}
    for part in placed:
        assert heats[part.text].sum() == pytest.approx(part.value, abs=1e-9)


def alpha(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image.getchannel("A"))


def test_a_cropped_picture_has_no_heat_outside_its_square() -> None:
    overlay = alpha(render(np.ones((2, 2)), 1.0, (0, 0, 0), (60, 20), SQUARE))
    assert overlay.shape == (20, 60)
    assert overlay[:, 20:40].min() > 200
    assert overlay[:, :19].max() == overlay[:, 41:].max() == 0


def test_a_padded_picture_is_covered_whole() -> None:
    overlay = alpha(render(np.array([[0.0, 1.0], [0.0, 1.0]]), 1.0, (0, 0, 0), (60, 20), PADDED))
    assert overlay[:, -5:].min() > 200
    assert overlay[:, :5].max() == 0


def test_a_line_around_one_cell_is_round_and_has_soft_edges() -> None:
    cells = np.zeros((7, 7))
    cells[3, 3] = 1.0
    card = EncoderCard("x", "", 4, (7, 7), "tokens", 32, "crop")
    clear = Image.new("RGBA", (280, 280), (0, 0, 0, 0))
    line = np.asarray(ringed(clear, cells, (280, 280), card).getchannel("R"), np.float64)  # white in nearly black
    rows, columns = np.nonzero(line > 200)
    far = np.hypot(rows - 139.5, columns - 139.5)
    assert far.max() - far.min() < 0.2 * far.mean()
    assert len(np.unique(line)) > 10  # not drawn in steps


def test_scales_and_signs() -> None:
    values = np.array([[1.0, 0.0], [0.0, -2.0]])
    image = render_signed(values, (40, 40), SQUARE)
    good, bad = image.getpixel((2, 2)), image.getpixel((38, 38))
    assert isinstance(good, tuple)
    assert isinstance(bad, tuple)
    assert good[1] > good[0]  # for: green
    assert bad[0] > bad[1]  # against: red
    assert bad[3] > good[3]  # and stronger
    assert alpha(render(np.zeros((2, 2)), 0.0, (0, 0, 0), (10, 10), SQUARE)).max() == 0


def test_combined_and_strongest(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red", "blue"), ("green",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    ranking = tapr.search(gallery, "green.png", spec=EditSpec("a", ["blue"], ["red"]), k=1)
    heats = heat_of(ranking.query, gallery, 0)
    assert combined(heats).shape == (3, 3)
    tops = strongest(heats)
    assert set(tops) == {("add", False), ("preserve", False), ("continuity", False)}
    assert tops["add", False] == np.abs(heats[0].values).max()
