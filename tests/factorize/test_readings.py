"""What grounded/3 makes of edits that were misread before, and what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.factorize.grammatical import is_caption, is_grammatical
from tapr.factorize.grounded import GroundedFactorizer, read
from tapr.factorize.medium import medium_of
from tapr.factorize.parts_of_speech import parts_of_speech, sense
from tapr.factorize.seeing import Seen
from tapr.factorize.tags import Tags
from tapr.query.crop import cropped
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tests.pictures import flag


def spec(caption: str, edit: str, subject: str = "") -> EditSpec:
    return read(Seen(caption), Tags(subject), edit).spec


def test_an_edit_is_read_several_ways() -> None:
    made = spec("a brown dog lying on a sofa", "a black dog on a beach", "dog")
    assert made.target == "a black dog lying on a beach"
    assert dict(made.readings) == {"A black dog on a beach.": 1}
    assert "the pizza is round" in dict(spec("a pizza on a table", "The pizza is round", "pizza").readings)


def test_what_the_readings_agree_on_weighs_more() -> None:
    made = spec("a brown dog lying on a red sofa", "with a hat", "cat")
    assert made.add == ("hat",)
    assert made.weight_of("hat") == 1
    assert made.weight_of("red sofa") == 0.5  # of the caption alone


def test_one_misreading_does_not_switch_the_reference_off() -> None:
    made = spec("an emoji of woman teacher light skin tone", "Change the skin tone to medium-dark")
    assert made.target == "an emoji of woman teacher medium-dark skin tone"
    assert (made.kind, made.continuity) == ("person", None)


@pytest.mark.parametrize(
    ("caption", "edit", "add", "remove"),
    [
        ("women's black caps", "a woolly winter hat, not a baseball cap", "woolly winter hat", "baseball cap"),
        ("women's black caps", "a straw hat, not a winter one", "straw hat", "winter hat"),
        ("men's blue shirts", "like a vest", "vest", "shirts"),
        ("women's black heels", "no heels, and brown", "brown flat shoes", "heels"),
        ("men's blue jackets", "the same for women", "women's jackets", "men's jackets"),
        ("a backpack", "a plain red backpack, not one with a face", "plain red backpack", "face"),
        ("a dress", "black, nothing written on it", "black dress", "text"),
    ],
)
def test_turns_of_phrase_are_read(caption: str, edit: str, add: str, remove: str) -> None:
    made = spec(caption, edit)
    assert add in made.add
    assert remove in made.remove


@pytest.mark.parametrize(
    ("caption", "edit"),
    [
        ("a vase with a flower in it", "with flowers in it"),
        ("women's black heels", "no heels, and brown"),
        ("a man with a red hat", "without the hat"),
        ("a red car on a street", "a red bus instead of the car"),
    ],
)
def test_factors_do_not_contradict_each_other(caption: str, edit: str) -> None:
    made = spec(caption, edit)
    removed = [set(atom.rstrip("s").split()) for atom in made.remove]
    for atom in (*made.add, *made.preserve):
        assert not any(gone <= set(atom.rstrip("s").split()) for gone in removed), made
    assert not any("heels" in sentence for sentence in made.sentences)


def test_a_sentence_that_is_no_english_is_neither_shown_nor_used() -> None:
    made = spec("a red and white plane is flying in the sky", "The plane is up")
    assert all(is_grammatical(sentence) for sentence in made.sentences)
    assert "up" not in made.add


@pytest.mark.parametrize(
    ("sentence", "holds"),
    [
        ("a black dog is running on a beach", True),
        ("women's blue dresses with long sleeves", True),
        ("an emoji of woman firefighter medium skin tone", True),
        ("a red and white plane with up is flying", False),
        ("a brown dog with a photo of a sitting dog is running", False),
        ("a dog is running is black", False),
        ("a man with", False),
        ("a of dog", False),
        ("A women's.", False),
        ("", False),
    ],
)
def test_the_check_of_grammar(sentence: str, holds: bool) -> None:
    assert is_grammatical(sentence) is holds


@pytest.mark.parametrize("edit", ["in red", "make it blue", "a dog instead of the cat", "without people", "darker"])
def test_a_difference_is_no_caption(edit: str) -> None:
    assert not is_caption(edit)


def test_a_description_is_one() -> None:
    assert is_caption("The pizza is round")
    assert is_caption("two men at a table")


@pytest.mark.parametrize(
    ("edit", "medium"),
    [
        ("as a sketch", "sketch"),
        ("a real photograph of it", "real photograph"),
        ("the real thing, photographed", "real photograph"),
        ("drawn in black ink", "black ink drawing"),
        ("drawn as flat clip art", "flat clip art"),
        ("in 3D", "3D render"),
        ("turn it into an oil painting", "oil painting"),
        ("as a black and white line drawing", "black and white line drawing"),
        ("as a black and white photo", ""),
        ("as an astronaut", ""),
        ("a painting of a dog on a wall", ""),
        ("with a logo", ""),
        ("a photo of a sitting dog", ""),
    ],
)
def test_another_medium(edit: str, medium: str) -> None:
    assert medium_of(edit) == medium


def test_in_another_medium_the_thing_stays_and_the_look_goes() -> None:
    made = spec("an emoji of dog", "as a pencil drawing", "dog")
    assert made == EditSpec("a pencil drawing of a dog", ["pencil drawing"], ["dog"], kind="medium")
    assert spec("a brown horse in a field", "in 3D").target == "a 3D render of a horse"


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        ("in red", "attribute"),
        ("a cat instead of the dog", "replacement"),
        ("as an astronaut", "person"),
        ("two dogs", "count"),
        ("without the collar", "removal"),
        ("at night", "place"),
        ("on a beach", "place"),
        ("with a hat", "change"),
        ("as a sketch", "medium"),
        ("something nicer", None),
    ],
)
def test_the_kind_of_edit(edit: str, kind: str | None) -> None:
    assert spec("a brown dog with a collar in a field", edit, "dog").kind == kind


def test_every_reference_is_read() -> None:
    made = read(Seen("a red car"), Tags(), "in blue", more=[(Seen("a wooden chair"), Tags())]).spec
    assert {"a blue car", "a blue wooden chair"} <= set(made.sentences)


def test_parts_of_speech_and_senses() -> None:
    assert parts_of_speech("dog") == "n"
    assert parts_of_speech("run").startswith("v")
    assert parts_of_speech("dogs") == "n"
    assert parts_of_speech("zzxy") == ""
    assert sense("teachers") == "person"
    assert sense("beach") == "place"


def test_the_chosen_part_is_what_the_words_speak_of(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    image = flag("yellow", "red", size=(64, 64))
    whole = Reference(image, encoder.encode_images([encoder.prepare(image)]), "00" * 32)
    factorizer = GroundedFactorizer(encoder, tmp_path)
    gone = [
        factorizer.factorize(cropped(whole, box), "make it blue").spec.remove
        for box in ((0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0))
    ]
    assert gone == [("yellow",), ("red",)]


def test_a_part_of_a_pixel_is_a_part(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    image = flag("yellow", "red", size=(8, 8))
    reference = Reference(image, encoder.encode_images([encoder.prepare(image)]), "00" * 32)
    tiny = cropped(reference, (0.99, 0.99, 1.0, 1.0))
    assert GroundedFactorizer(encoder, tmp_path).factorize(tiny, "make it blue").spec.add == ("blue",)
