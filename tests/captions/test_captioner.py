"""Descriptions: which of several comes first, how sure they are, and what `tapr.describe` takes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

import tapr
from tapr.captions.captioner import Captioner
from tapr.captions.description import Description, has_captioner
from tapr.captions.sureness import LINES, chance_of_being_right, manner
from tapr.encoders.base import Encoder
from tapr.encoders.centred import CentredEncoder
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.fake import FakeEncoder
from tests.captions.golden import CAPTIONS, VECTORS
from tests.refusals import refused


@pytest.fixture(scope="module")
def captioner(clip: ClipOnnxEncoder) -> Captioner:
    return Captioner(clip)


def a_red_circle() -> Image.Image:
    image = Image.new("RGB", (320, 240), "white")
    ImageDraw.Draw(image).ellipse((90, 50, 230, 190), fill="red")
    return image


def test_a_vector_is_described_greedily_alone_or_among_others(captioner: Captioner) -> None:
    descriptions = captioner.describe_vectors(VECTORS)
    assert [one.text for one in descriptions] == CAPTIONS
    alone = captioner.describe_vectors(VECTORS[3:4])[0]
    assert alone.text == CAPTIONS[3]
    assert alone.score == pytest.approx(descriptions[3].score, abs=1e-3)


def test_several_are_different_and_in_the_text_tower_s_order(captioner: Captioner, clip: ClipOnnxEncoder) -> None:
    for how in ("beam", "sample"):
        several = captioner.describe_several(VECTORS[1], 5, how=how)
        assert len({one.text for one in several}) == len(several) > 1
        cosines = clip.encode_texts([one.text for one in several]) @ VECTORS[1]
        assert (np.diff(cosines) <= 1e-5).all()
    assert len(captioner.describe_several(VECTORS[1], 2)) == 2


def test_one_of_a_beam_is_the_most_fitting_of_three(captioner: Captioner) -> None:
    best = captioner.describe_several(VECTORS[4], 1, how="beam")
    assert best == captioner.describe_several(VECTORS[4], 3, how="beam")[:1]


@pytest.mark.parametrize(
    ("n", "how", "code", "fact"),
    [
        (0, None, "bad_option", "50"),
        (51, None, "bad_option", "50"),
        (2, "greedy", "conflicting_options", "2"),
        (1, "loudly", "bad_option", "'loudly'"),
    ],
)
def test_what_cannot_be_asked(captioner: Captioner, n: int, how: str | None, code: str, fact: str) -> None:
    with refused(code, fact):
        captioner.describe_several(VECTORS[0], n, how=how)


def test_an_encoder_says_whether_it_has_a_captioner(clip: ClipOnnxEncoder, captioner: Captioner) -> None:
    zero = np.zeros(512, np.float32)
    centred: Encoder = CentredEncoder(clip, zero, zero)
    assert has_captioner(clip.card)
    assert has_captioner(centred.card)
    picture = a_red_circle()
    assert Captioner(centred).look(picture).tolist() == captioner.look(picture).tolist()
    assert not has_captioner(FakeEncoder().card)
    with refused("unfit_encoder", "fake", "clip-b16"):
        Captioner(FakeEncoder())


@pytest.mark.parametrize(
    ("caption", "found"),
    [
        ("an emoji of red heart", "emoji"),
        ("women's pink tops", "product"),
        ("men's black sports shoes", "product"),
        ("unisex's black caps", "product"),
        ("women in a boat on a lake", "sentence"),
        ("a man in a boat", "sentence"),
        ("menu on a table", "sentence"),
    ],
)
def test_the_three_manners_of_speaking(caption: str, found: str) -> None:
    assert manner(caption) == found


def test_the_score_is_a_chance_that_rises_with_both_of_its_numbers() -> None:
    for caption in ("a dog", "men's ties", "an emoji of dog"):
        low, high = (chance_of_being_right(caption, *numbers) for numbers in ((-1.0, 0.2), (-0.2, 0.32)))
        assert 0 < low < high < 1
    assert set(LINES) == {"sentence", "product", "emoji"}
    assert chance_of_being_right("an emoji of x", -1000.0, -1.0) == pytest.approx(0)  # does not overflow


@pytest.mark.parametrize(
    ("text", "score", "stands"),
    [
        ("a dog on the grass and a cat on the bench", 0.9, True),
        ("a dog on the grass", 0.8, False),  # sure, but not enough to stand under a picture
        ("a black and white hat with a black hat", 0.99, False),
        ("a pink dress with blue dresses", 0.99, False),
    ],
)
def test_only_the_surest_captions_that_name_nothing_twice_are_titles(text: str, score: float, stands: bool) -> None:
    assert Description(text, score).sure
    assert Description(text, score).is_title is stands


def test_noise_is_described_without_being_sure(clip: ClipOnnxEncoder) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    assert not tapr.describe(noise, encoder=clip).sure


def test_describe_takes_a_path_bytes_or_a_picture(clip: ClipOnnxEncoder, tmp_path: Path) -> None:
    picture, file = a_red_circle(), io.BytesIO()
    picture.save(file, "PNG")
    (tmp_path / "red.png").write_bytes(file.getvalue())
    one = tapr.describe(picture, encoder=clip)
    assert isinstance(one, tapr.Description)
    assert one.text
    for source in (tmp_path / "red.png", str(tmp_path / "red.png"), file.getvalue()):
        assert tapr.describe(source, encoder=clip).text == one.text
    assert tapr.describe(picture, 1, encoder=clip) == [one]
    assert len(tapr.describe(picture, 3, encoder=clip)) == 3
    assert one.to_dict() == {"text": one.text, "score": pytest.approx(one.score, abs=1e-4), "sure": one.sure}


def test_what_is_no_picture_is_refused_with_a_sentence(clip: ClipOnnxEncoder, tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_text("no picture")
    with refused("not_a_picture", "x.jpg"):
        tapr.describe(tmp_path / "x.jpg", encoder=clip)
