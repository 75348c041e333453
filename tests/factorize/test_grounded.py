from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from PIL import Image

from tapr.captions.captioner import Captioner
from tapr.encoders.base import Encoder
from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.factorize import grounded, seeing
from tapr.factorize.base import Factorizer
from tapr.factorize.grounded import GroundedFactorizer, read
from tapr.factorize.seeing import Seen, Seer, by_tags, man_or_woman, with_seen_tone
from tapr.factorize.tagged import MAX_ATOMS
from tapr.factorize.tags import Tagger, Tags
from tapr.query.reference import Reference
from tapr.query.spec import MAX_EDIT_CHARACTERS, EditSpec
from tests.factorize.test_tagged import ANNOTATIONS, RELATIVE, official_edits, reference
from tests.refusals import refused


class SaysTheSame:
    """A captioner for whom every picture shows the same."""

    def describe_vectors(self, vectors: np.ndarray) -> list[Seen]:
        return [Seen("a red car parked on a street", 0.7)] * len(vectors)


class IsUnsure:
    def describe_vectors(self, vectors: np.ndarray) -> list[Seen]:
        return [Seen("a vase with a flower in it", 0.1, sure=False)] * len(vectors)


@pytest.fixture
def factorizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GroundedFactorizer:
    return with_captioner(SaysTheSame(), tmp_path, monkeypatch)


def with_captioner(captioner: object, folder: Path, monkeypatch: pytest.MonkeyPatch) -> GroundedFactorizer:
    monkeypatch.setattr(grounded, "seer_of", lambda encoder, path: Seer(cast("Captioner", captioner), encoder, path))
    return GroundedFactorizer(FakeEncoder(), folder)


def test_the_caption_with_the_edit_applied_is_target(factorizer: GroundedFactorizer) -> None:
    known: Factorizer = factorizer
    made = known.factorize(reference(), "make it blue")
    assert made.factorizer == known.name == "grounded/3"
    assert made.spec == EditSpec(
        "a blue car parked on a street", ["blue car"], ["car", "street"], ["red car"],
        readings=["A blue car."], kind="attribute",
    )  # fmt: skip
    assert made.details["caption"] == {"text": "a red car parked on a street", "score": 0.7, "sure": True}
    assert made.details["operations"] == ['exchange colour: "red" -> "blue" (car)']
    assert json.loads(json.dumps(made.details)) == made.details


def test_the_same_question_has_the_same_answer(factorizer: GroundedFactorizer) -> None:
    edit = "the same but smaller, without people"
    assert factorizer.factorize(reference(), edit) == factorizer.factorize(reference(), edit)


def test_an_encoder_without_a_captioner_is_read_by_tags_and_says_so(tmp_path: Path) -> None:
    made = GroundedFactorizer(FakeEncoder(), tmp_path).factorize(reference("red"), "make it blue")
    assert (made.spec.add, made.spec.remove) == (("blue",), ("red",))
    assert made.factorizer == "grounded/3"
    assert "no captioner" in made.notes[-1]


@pytest.mark.parametrize("edit", ["", "   ", "...", "!?", "red " * MAX_EDIT_CHARACTERS])
def test_what_is_no_edit_is_refused(factorizer: GroundedFactorizer, edit: str) -> None:
    with refused("too_large" if len(edit) > MAX_EDIT_CHARACTERS else "empty_edit"):
        factorizer.factorize(reference(), edit)


@pytest.mark.parametrize(
    ("tags", "target"),
    [
        (Tags("sweater", {"colour": "grey"}, {"sweater": 0.9}), "a blue sweater"),
        (Tags("sweater", {"colour": "grey"}, {"sweater": 0.3}), "a blue sweater"),
        (Tags("vase", {"colour": "grey"}, {"vase": 0.9}), "a blue vase with a flower in it"),  # it names that
        (Tags(), "a blue vase with a flower in it"),
    ],
)
def test_tags_take_the_place_of_an_unsure_caption_that_does_not_name_them(
    tags: Tags, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tagger, "tag", lambda self, picture: tags)
    made = with_captioner(IsUnsure(), tmp_path, monkeypatch).factorize(reference(), "in blue")
    assert made.spec.target == target
    assert any('"a vase with a flower in it"' in note for note in made.notes)


@pytest.mark.parametrize(
    ("tags", "target"),
    [
        (Tags("sweater", {}, {"sweater": 0.8}), "a blue sweater"),  # certain, and the caption names none
        (Tags("sweater", {}, {"sweater": 0.6}), "a blue car parked on a street"),
        (Tags("truck", {}, {"truck": 0.8}), "a blue truck"),
        (Tags("car", {}, {"car": 0.8}), "a blue car parked on a street"),
    ],
)
def test_a_sure_caption_gives_way_only_to_a_certain_tag_that_it_does_not_name(
    tags: Tags, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tagger, "tag", lambda self, picture: tags)
    made = with_captioner(SaysTheSame(), tmp_path, monkeypatch).factorize(reference(), "make it blue")
    assert made.spec.target == target


def test_tags_are_said_as_a_caption_would_say_them() -> None:
    assert by_tags(Tags("sweater", {"colour": "grey"})) == "a grey sweater"
    assert by_tags(Tags("jeans", {})) == "jeans"
    assert by_tags(Tags("animal", {"colour": "orange"})) == "an orange animal"


def test_an_unsure_caption_is_said_to_be_so() -> None:
    notes = read(Seen("a dog", 0.2, sure=False), Tags(), "in the snow").notes
    assert any('"a dog" is unsure' in note for note in notes)


def test_an_edit_that_names_nothing_definite_says_so() -> None:
    made = read(Seen("a dog"), Tags(), "something nicer")
    assert made.spec == EditSpec("a dog", preserve=["dog"])
    assert made.spec.kind is None
    assert "nothing definite" in made.notes[0]


def test_a_language_of_no_table_is_searched_as_it_stands() -> None:
    made = read(Seen("a dog"), Tags(), "日本語の帽子")
    assert made.spec == EditSpec("日本語の帽子", add=["日本語の帽子"])
    assert "not in English" in made.notes[0]


def test_words_that_are_not_known_are_named() -> None:
    assert read(Seen("a dog"), Tags(), "with a zorblaxq").notes == ("Unknown words, used as typed: zorblaxq",)


def test_asking_for_colour_removes_black_and_white(factorizer: GroundedFactorizer) -> None:
    grey = Image.new("RGB", (40, 40), COLOURS["grey"])
    picture = Reference(grey, reference().evidence, "00" * 32)
    assert "black and white photo" in factorizer.factorize(picture, "the photo is in colour").spec.remove


def test_a_long_list_is_cut_with_a_note() -> None:
    names = ["hat", "cup", "dog", "cat", "car", "bus", "tree", "lamp", "bed", "sofa", "fork", "ball", "kite", "drum"]
    made = read(Seen("a room"), Tags(), "add " + ", ".join(f"a {name}" for name in names))
    assert len(made.spec.add) == MAX_ATOMS < len(names)
    assert any("only the first" in note for note in made.notes)


@pytest.mark.skipif(not ANNOTATIONS.exists(), reason="the official annotations are not on this machine")
@pytest.mark.slow
@pytest.mark.parametrize("caption", ["a brown dog is sitting on a couch in a room", "women's black dresses", ""])
def test_every_fifth_official_validation_edit_gives_a_valid_spec(caption: str) -> None:
    edits = list(official_edits())[::5]
    for edit in edits:
        spec = read(Seen(caption), Tags(), edit).spec  # EditSpec itself checks its rules
        assert len(spec.target.split()) <= grounded.MAX_WORDS
        assert not any(RELATIVE.search(atom) for atom in [*spec.add, *spec.remove]), edit


def test_who_an_emoji_shows_is_told_by_the_text_tower() -> None:
    class Sees:
        def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
            return np.array([[1.0, 0.0] if "woman" in text else [0.0, 1.0] for text in texts], np.float32)

    encoder = cast(Encoder, Sees())
    woman, man = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    assert man_or_woman("an emoji of firefighter dark skin tone", woman, encoder) == (
        "an emoji of woman firefighter dark skin tone"
    )
    assert man_or_woman("an emoji of person running", man, encoder) == "an emoji of man running"
    assert man_or_woman("an emoji of tiger", man, encoder) == "an emoji of tiger"
    assert man_or_woman("a person on a beach", man, encoder) == "a person on a beach"


def test_the_skin_tone_of_a_caption_is_told_by_the_text_tower() -> None:
    encoder = FakeEncoder()
    wanted = seeing._tone_vectors(encoder)
    for place, tone in enumerate(seeing._TONES):
        assert with_seen_tone("an emoji of man medium skin tone", wanted[place], encoder).split()[4] == tone
    assert with_seen_tone("a man in a suit", wanted[0], encoder) == "a man in a suit"
