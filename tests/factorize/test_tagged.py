from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.factorize.base import Factorizer
from tapr.factorize.grammar import read_edit
from tapr.factorize.grounded import GroundedFactorizer
from tapr.factorize.sentences import MAX_WORDS
from tapr.factorize.tagged import MAX_ATOMS, ground, is_grey
from tapr.factorize.tags import Tags
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import MAX_EDIT_CHARACTERS, EditSpec
from tests.refusals import refused

ANNOTATIONS = Path(__file__).parents[2].joinpath("../shared/data/annotations").resolve()
if not ANNOTATIONS.exists():  # in a worktree, one folder further down
    ANNOTATIONS = Path(__file__).parents[2].joinpath("../../shared/data/annotations").resolve()
RELATIVE = re.compile(r"(?:^|\s)(?:more|less|fewer|than|not|no|without|never|different|same)(?:\s|$)")


@pytest.fixture
def factorizer(tmp_path: Path) -> GroundedFactorizer:
    return GroundedFactorizer(FakeEncoder(), tmp_path)


def reference(colour: str = "red") -> Reference:
    encoder = FakeEncoder()
    image = Image.new("RGB", (40, 40), COLOURS[colour])
    return Reference(image, encoder.encode_images([encoder.prepare(image)]), "00" * 32)


def spec(edit: str, tags: Tags | None = None) -> EditSpec:
    return ground(edit, read_edit(edit), tags or Tags())[0]


def test_it_is_a_factorizer(factorizer: GroundedFactorizer) -> None:
    known: Factorizer = factorizer
    made = known.factorize(reference(), "make it blue")
    assert isinstance(made, Factorization)
    assert made.factorizer == known.name == "grounded/3"


def test_the_colour_that_is_replaced_is_read_from_the_picture(factorizer: GroundedFactorizer) -> None:
    made = factorizer.factorize(reference("red"), "make it blue")
    assert (made.spec.add, made.spec.remove) == (("blue",), ("red",))
    assert made.details["tags"]["colour"] == "red"
    assert json.loads(json.dumps(made.details)) == made.details


def test_a_colour_that_is_there_already_is_not_removed(factorizer: GroundedFactorizer) -> None:
    assert factorizer.factorize(reference("blue"), "make it dark blue").spec.remove == ()


def test_only_attributes_of_the_same_kind_are_replaced(factorizer: GroundedFactorizer) -> None:
    assert factorizer.factorize(reference("red"), "with a blue hat").spec.remove == ()
    assert factorizer.factorize(reference("red"), "at night").spec.remove == ()


def test_the_same_question_has_the_same_answer(factorizer: GroundedFactorizer, tmp_path: Path) -> None:
    edit = "the same but smaller, without people"
    again = GroundedFactorizer(FakeEncoder(), tmp_path / "new")
    assert again.factorize(reference(), edit) == factorizer.factorize(reference(), edit)


@pytest.mark.parametrize("edit", ["", "   ", "...", "!?"])
def test_an_edit_without_words_is_refused(edit: str, factorizer: GroundedFactorizer) -> None:
    with refused("empty_edit"):
        factorizer.factorize(reference(), edit)


def test_a_very_long_edit_is_refused(factorizer: GroundedFactorizer) -> None:
    with refused("too_large"):
        factorizer.factorize(reference(), "red " * MAX_EDIT_CHARACTERS)


def test_nonsense_is_searched_as_it_stands_and_said_so(factorizer: GroundedFactorizer) -> None:
    made = factorizer.factorize(reference(), "Frobnic quuxly")
    assert made.spec == EditSpec("frobnic quuxly", add=("frobnic quuxly",), kind="change")
    assert "Unknown words, used as typed: frobnic, quuxly" in made.notes


def test_an_edit_in_another_language_is_searched_as_it_stands() -> None:
    assert spec("日本語の帽子") == EditSpec("日本語の帽子", add=("日本語の帽子",))


def test_an_edit_that_names_nothing_definite_says_so() -> None:
    made, notes = ground("from a different angle", read_edit("from a different angle"), Tags("dog"))
    assert made == EditSpec("A dog.", preserve=("dog",))
    assert any("nothing definite" in note for note in notes)


@pytest.mark.parametrize(
    ("edit", "tags", "expected"),
    [
        ("the same person as an astronaut", Tags("woman"),
         EditSpec("A person as an astronaut.", ("astronaut",), ("person",))),
        ("the same face, but crying", Tags(), EditSpec("A crying face.", ("crying",), ("face",))),
        ("as a cook", Tags("farmer"), EditSpec("A person as a cook.", ("cook",), ("person",))),
        ("with a hat", Tags("dog"), EditSpec("A dog with a hat.", ("hat",), ("dog",))),
        ("without glasses", Tags("man"), EditSpec("A man.", (), ("man",), ("glasses",))),
        ("turn it into a cat", Tags("dog"), EditSpec("A cat.", ("cat",), (), ("dog",))),
        ("as a pencil drawing", Tags("cat"), EditSpec("A pencil drawing of a cat.", ("pencil drawing",), ("cat",))),
        ("is longer and has white stripes", Tags("dress"),
         EditSpec("A long dress with white stripes.", ("long dress", "white stripes"), ("dress",))),
        ("has two of them and is shot from above", Tags("bottle"),
         EditSpec("Two bottles, seen from above.", ("two bottles", "seen from above"), ("bottle",))),
        ("has a dog", Tags("sofa", {"scene": "living room"}),
         EditSpec("A sofa with a dog, in a living room.", ("dog",), ("sofa", "living room"))),
        ("is on a beach", Tags("chair", {"scene": "garden"}), EditSpec("A chair on a beach.", ("beach",), ("chair",))),
        ("Three pandas eating bamboo.", Tags("dog", {"scene": "garden"}),
         EditSpec("Three pandas eating bamboo.", ("three pandas eating bamboo",))),
    ],
)  # fmt: skip
def test_edit_and_picture_together(edit: str, tags: Tags, expected: EditSpec) -> None:
    assert spec(edit, tags) == expected


def test_a_subject_that_is_not_sure_names_target_but_is_not_preserved() -> None:
    assert spec("with a hat", Tags("dog", shares={"dog": 0.3})) == EditSpec("A dog with a hat.", ("hat",))


def test_one_atom_stands_in_one_factor() -> None:
    made = spec("has sleeves and no sleeves, the same belt, remove the belt", Tags("belt"))
    atoms = [*made.add, *made.preserve, *made.remove]
    assert len({atom.casefold() for atom in atoms}) == len(atoms)


def test_a_long_list_is_cut_with_a_note() -> None:
    names = ["hat", "cup", "dog", "cat", "car", "bus", "tree", "lamp", "bed", "sofa", "fork", "ball", "kite", "drum"]
    edit = "add " + ", ".join(f"a {name}" for name in names)
    made, notes = ground(edit, read_edit(edit), Tags())
    assert len(made.add) == MAX_ATOMS < len(names)
    assert any("only the first" in note for note in notes)
    assert len(made.target.split()) <= MAX_WORDS


def test_a_grey_picture_is_known_by_its_pixels() -> None:
    assert is_grey(Image.new("RGB", (50, 50), (90, 90, 90)))
    assert not is_grey(Image.new("RGB", (50, 50), (90, 60, 30)))


def test_asking_for_colour_removes_black_and_white(factorizer: GroundedFactorizer) -> None:
    made = factorizer.factorize(reference("grey"), "the photo is in colour")
    assert (made.spec.add, made.spec.remove) == (("colour photo",), ("black and white photo",))


def official_edits() -> Iterator[str]:
    for row in json.loads((ANNOTATIONS / "cirr/captions/cap.rc2.val.json").read_text()):
        yield row["caption"]
    for row in json.loads((ANNOTATIONS / "circo/annotations/val.json").read_text()):
        yield row["relative_caption"]
    for category in ("dress", "shirt", "toptee"):
        for row in json.loads((ANNOTATIONS / f"fashioniq/captions/cap.{category}.val.json").read_text()):
            yield " and ".join(caption.strip(".?, ") for caption in row["captions"])


@pytest.mark.skipif(not ANNOTATIONS.exists(), reason="the official annotations are not on this machine")
@pytest.mark.slow
def test_every_official_validation_edit_gives_a_valid_spec() -> None:
    edits = list(official_edits())
    assert len(edits) == 4181 + 220 + 6016
    empty = 0
    for edit in edits:
        made = spec(edit, Tags("dog", {"colour": "red", "scene": "park"}))  # EditSpec itself checks its rules
        assert len(made.target.split()) <= MAX_WORDS
        atoms = [*made.add, *made.remove]
        assert not any(RELATIVE.search(atom) for atom in atoms), edit
        empty += not atoms
    assert empty < 0.01 * len(edits)
