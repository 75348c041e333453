"""registry: encoders by name, and the one a bank was made with."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from tapr.encoders import registry
from tapr.encoders.centred import CentredEncoder, Centring
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.fake import FakeEncoder
from tapr.encoders.registry import load_encoder, load_for_card
from tapr.errors import TaprError
from tests.refusals import refused


def test_fake_ignores_the_default_extractor() -> None:
    assert load_encoder("fake").card == FakeEncoder().card
    assert load_encoder("fake", extractor="tokens", fit="pad").card.fit == "pad"
    with refused("bad_option", "'value'", option="extractor"):
        load_encoder("fake", extractor="value")


def test_the_default_is_clip_b16(clip: ClipOnnxEncoder) -> None:
    assert load_encoder().card == clip.card
    card = load_encoder("clip-b16", extractor="value", fit="pad", template="a photo of {}").card
    assert card == replace(clip.card, extractor="value", fit="pad", template="a photo of {}")


def test_an_unknown_name_lists_the_choices() -> None:
    with refused("unknown_name", "'clip-b17'", "clip-b16, open_clip:MODEL/TAG or fake"):
        load_encoder("clip-b17")


@pytest.mark.parametrize("name", ["open_clip:", "open_clip:ViT-B-32", "open_clip:/openai", "open_clip:ViT-B-32/"])
def test_half_an_open_clip_name_is_refused(name: str) -> None:
    with refused("unknown_name", "open_clip:MODEL/TAG"):
        load_encoder(name)


def test_open_clip_takes_the_rest_of_the_name_as_tag_or_path() -> None:
    with pytest.raises(TaprError) as caught:
        load_encoder("open_clip:ViT-B-32/no/such/checkpoint.pt")
    wanted = "no/such/checkpoint.pt" if importlib.util.find_spec("open_clip") else "openclip"
    assert wanted in str(caught.value)


def test_cpu_encoders_refuse_another_device() -> None:
    with refused("no_device", "'cuda'"):
        load_encoder("fake", device="cuda")


def test_a_bank_s_encoder_is_loaded_from_its_card() -> None:
    card = FakeEncoder(fit="pad").card
    assert load_for_card(card).card == card


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"weights_sha256": "0" * 64}, ["weights sha256", "000000000000..."]),
        ({"grid": (7, 7)}, ["grid", "(7, 7)", "(3, 3)"]),
        ({"dim": 64}, ["dim", "64", "32"]),
        ({"image_size": 48}, ["image size", "48", "32"]),
    ],
)
def test_another_card_is_refused_naming_both(change: dict[str, object], facts: list[str]) -> None:
    with refused("other_encoder", *facts):
        load_for_card(replace(FakeEncoder().card, **change))  # type: ignore[arg-type]


def test_a_template_or_fit_the_encoder_cannot_have() -> None:
    with refused("bad_option", "fake", option="template"):
        load_for_card(replace(FakeEncoder().card, template="a {}"))
    with refused("bad_input", "stretch"):
        load_for_card(replace(FakeEncoder().card, fit="stretch"))


def test_a_centred_bank_gets_a_centred_encoder() -> None:
    centring = Centring(np.full(32, 0.1, np.float32), np.full(32, 0.2, np.float32))
    made_with = CentredEncoder(FakeEncoder(), centring.image_mean, centring.text_mean)
    loaded = load_for_card(made_with.card, centring)
    assert loaded.card == made_with.card
    np.testing.assert_array_equal(loaded.encode_atoms(["red"]), made_with.encode_atoms(["red"]))


def test_a_card_and_means_that_disagree() -> None:
    centring = Centring(np.zeros(32, np.float32), np.zeros(32, np.float32))
    with refused("damaged_gallery", "'tokens'"):
        load_for_card(FakeEncoder().card, centring)
    with refused("damaged_gallery", "'tokens+centred'"):
        load_for_card(replace(FakeEncoder().card, extractor="tokens+centred"))


def test_known_lines_agree_with_the_encoders(clip: ClipOnnxEncoder) -> None:
    by_name = {known.name: known for known in registry.known_models()}
    for card in (clip.card, FakeEncoder().card):
        known = by_name[card.name]
        assert (known.dim, known.locals_count) == (card.dim, card.locals_count)
        assert known.present is True
    assert by_name["open_clip:ViT-L-14/laion2b_s32b_b82k"].present is None
