"""The decoder against the captions its makers got, and what it promises of its three ways to speak."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tapr.captions.captioner import load_decoder
from tapr.captions.decoder import Decoder
from tapr.captions.network import END, MAX_CAPTION_WORDS, Network
from tapr.encoders.model_files import CAPTIONER
from tapr.types import Float32
from tests.captions.golden import CAPTIONS, SHARED, VECTORS, all_sixty
from tests.refusals import refused


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder()


def test_it_says_the_captions_of_its_makers(decoder: Decoder) -> None:
    assert [caption.text for caption in decoder.greedy(VECTORS)] == CAPTIONS


@pytest.mark.skipif(SHARED is None, reason="the captioner's own data is not on this machine")
def test_it_says_all_sixty_captions_of_its_makers(decoder: Decoder) -> None:
    assert isinstance(SHARED, Path)
    captions, vectors = all_sixty(SHARED)
    assert [caption.text for caption in decoder.greedy(vectors)] == captions


def test_a_caption_does_not_depend_on_its_company(decoder: Decoder) -> None:
    together = decoder.greedy(np.repeat(VECTORS, 4, axis=0)[::-1])  # more than one run's worth, in another order
    for place, caption in enumerate(together[::-1]):
        alone = decoder.greedy(VECTORS[place // 4][None])[0]
        assert alone.text == caption.text
        assert alone.log_probability == pytest.approx(caption.log_probability, abs=1e-4)


def test_threads_do_not_disturb_each_other(decoder: Decoder) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda vector: decoder.greedy(vector[None])[0].text, np.repeat(VECTORS, 3, axis=0)))
    assert found == [caption for caption in CAPTIONS for _ in range(3)]


def test_no_vectors_no_captions(decoder: Decoder) -> None:
    assert decoder.greedy(np.zeros((0, 512), np.float32)) == []


@pytest.mark.parametrize("vectors", [np.zeros((2, 32)), np.zeros(512), np.full((1, 512), np.nan)])
def test_vectors_of_another_encoder_are_refused(decoder: Decoder, vectors: Float32) -> None:
    with refused("bad_vectors", "512"):
        decoder.greedy(vectors)


def test_log_probabilities_are_what_the_network_says_word_by_word(decoder: Decoder) -> None:
    network, vector = Network(), VECTORS[:1]
    memory, word, total, words = network.read(vector), 1, 0.0, 0
    while word != END:
        row, memory = network.step(np.array([word]), words, memory)
        assert np.exp(row[0].astype(np.float64)).sum() == pytest.approx(1, abs=1e-4)
        word = int(row[0].argmax())
        total, words = total + float(row[0, word]), words + 1
    assert decoder.greedy(vector)[0].log_probability == pytest.approx(total / words, abs=1e-4)
    assert total / words < 0


def test_a_beam_gives_different_captions_the_likeliest_for_their_length_first(decoder: Decoder) -> None:
    for vector in VECTORS[:4]:
        for width in (1, 3, 6):
            captions = decoder.beam(vector, width)
            assert len(captions) == width
            assert len({caption.text for caption in captions}) == width
    first, greedy = decoder.beam(VECTORS[1])[0], decoder.greedy(VECTORS[1:2])[0]
    assert first.log_probability >= greedy.log_probability - 0.2


def test_a_beam_of_one_is_greedy(decoder: Decoder) -> None:
    assert [decoder.beam(vector, 1)[0].text for vector in VECTORS] == CAPTIONS


def test_a_sample_depends_on_its_seed_and_place_alone(decoder: Decoder) -> None:
    five = decoder.sample(VECTORS[0], 5, seed=7)
    assert five == decoder.sample(VECTORS[0], 5, seed=7)
    assert [one.text for one in five[:2]] == [one.text for one in decoder.sample(VECTORS[0], 2, seed=7)]
    assert [one.text for one in five] != [one.text for one in decoder.sample(VECTORS[0], 5, seed=8)]
    assert len({one.text for one in decoder.sample(VECTORS[0], 15)}) > 5


def test_a_cold_sample_is_greedy_and_a_hot_one_ends(decoder: Decoder) -> None:
    assert decoder.sample(VECTORS[0], 1, temperature=0.01)[0].text == CAPTIONS[0]
    assert all(one.text for one in decoder.sample(VECTORS[0], 4, temperature=3))
    assert len(decoder.sample(VECTORS[0], 1, temperature=50)[0].text.split()) <= MAX_CAPTION_WORDS


@pytest.mark.parametrize("temperature", [0, -1, float("nan")])
def test_a_temperature_is_above_0(decoder: Decoder, temperature: float) -> None:
    with refused("bad_option", f"{temperature:g}", option="temperature"):
        decoder.sample(VECTORS[0], 1, temperature=temperature)


@pytest.mark.skipif(SHARED is None, reason="the captioner's weights are not on this machine")
def test_the_tool_builds_the_shipped_graph(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    load_file = pytest.importorskip("safetensors.numpy").load_file
    from tools.build_captioner import Captioner

    assert isinstance(SHARED, Path)
    built = Captioner(load_file(SHARED / "artifacts" / "captioner" / "captioner_fp16.safetensors")).build()
    assert built.SerializeToString(deterministic=True) == CAPTIONER.path.read_bytes()
