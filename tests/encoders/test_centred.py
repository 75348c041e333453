"""centred: what is taken away, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tapr.encoders.base import Encoder, unit
from tapr.encoders.centred import CentredEncoder, phrase_mean, phrases
from tapr.encoders.fake import FakeEncoder
from tests.refusals import refused


@pytest.fixture
def fake() -> FakeEncoder:
    return FakeEncoder()


def flags(encoder: Encoder) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    colours = [("red", "white"), ("blue", "yellow")]
    pictures = []
    for left, right in colours:
        image = Image.new("RGB", (60, 60), right)
        image.paste(Image.new("RGB", (30, 60), left), (0, 0))
        pictures.append(encoder.prepare(image))
    return pictures


def test_local_vectors_and_atoms_lose_their_means(fake: FakeEncoder) -> None:
    pictures, words = flags(fake), ["red", "a blue car"]
    plain = fake.encode_images(pictures)
    image_mean = plain.local_vectors.mean(axis=(0, 1))
    text_mean = phrase_mean(fake)
    centred = CentredEncoder(fake, image_mean, text_mean)
    np.testing.assert_allclose(
        centred.encode_images(pictures).local_vectors, unit(plain.local_vectors - image_mean), atol=1e-6
    )
    np.testing.assert_allclose(centred.encode_atoms(words), unit(fake.encode_atoms(words) - text_mean), atol=1e-6)


def test_global_vectors_and_sentences_stay(fake: FakeEncoder) -> None:
    centred = CentredEncoder(fake, np.full(32, 0.1, np.float32), np.full(32, 0.2, np.float32))
    pictures = flags(fake)
    np.testing.assert_array_equal(
        centred.encode_images(pictures).global_vectors, fake.encode_images(pictures).global_vectors
    )
    np.testing.assert_array_equal(centred.encode_texts(["red"]), fake.encode_texts(["red"]))
    assert not np.allclose(centred.encode_atoms(["red"]), fake.encode_atoms(["red"]))
    assert centred.unread("word " * 80) == fake.unread("word " * 80) != ""


def test_the_card_says_so(fake: FakeEncoder) -> None:
    centred = CentredEncoder(fake, np.zeros(32, np.float32), np.zeros(32, np.float32))
    assert isinstance(centred, Encoder)
    assert centred.card.extractor == "tokens+centred"
    assert centred.card != fake.card
    with refused("unfit_encoder", "tokens+centred"):
        CentredEncoder(centred, np.zeros(32, np.float32), np.zeros(32, np.float32))


def test_empty_batches_stay_empty(fake: FakeEncoder) -> None:
    centred = CentredEncoder(fake, np.zeros(32, np.float32), np.zeros(32, np.float32))
    assert centred.encode_images([]).local_vectors.shape == (0, 9, 32)
    assert centred.encode_atoms([]).shape == (0, 32)


@pytest.mark.parametrize("mean", [np.zeros(31, np.float32), np.full(32, np.nan, np.float32)], ids=["short", "nan"])
def test_unusable_means_are_refused(fake: FakeEncoder, mean: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    with refused("bad_vectors", "32"):
        CentredEncoder(fake, mean, np.zeros(32, np.float32))


def test_the_phrases_are_many_short_and_different() -> None:
    listed = phrases()
    assert len(listed) == len(set(listed)) >= 300
    assert all(phrase == phrase.strip() and 0 < len(phrase) < 60 for phrase in listed)


def test_the_phrase_mean_is_the_mean_over_the_list(fake: FakeEncoder) -> None:
    expected = sum(fake.encode_atoms([phrase])[0].astype(np.float64) for phrase in phrases()) / len(phrases())
    np.testing.assert_allclose(phrase_mean(fake), expected, atol=1e-6)
