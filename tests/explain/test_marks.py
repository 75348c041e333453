"""Ticks: an atom counts as found where it beats what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapr
from tapr import EditSpec, Gallery
from tapr.encoders.base import unit
from tapr.encoders.fake import FakeEncoder
from tapr.explain import calibration
from tapr.explain.calibration import LINES, TEMPERATURE, Line, Pictures, contested, fit, usual_fits, words_of
from tapr.explain.contests import Contest, claim_of, colours
from tapr.explain.marks import is_met, marks, said
from tapr.types import Float32
from tests.pictures import write_flags

DIM = 64


class Spoken(FakeEncoder):
    """Each phrase has the vector that the test gives it; every other one a direction of its own, far from pictures."""

    def __init__(self, vectors: Mapping[str, Float32]) -> None:
        super().__init__()
        self.card = replace(self.card, name=f"spoken {id(self)}", dim=DIM)
        self.encoded: list[str] = []
        self._vectors = vectors

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        self.encoded += texts
        return np.stack([self._vectors.get(text, _away(text)) for text in texts])

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self.encode_texts(texts)


def _away(text: str) -> Float32:
    vector = np.random.default_rng(len(text)).normal(size=DIM)
    vector[:8] = 0  # the pictures of these tests lie in the first eight
    return unit(vector)


def axis(*weights: float) -> Float32:
    return unit(np.pad(np.array(weights, np.float32), (0, DIM - len(weights))))


def picture(*vectors: Float32) -> Pictures:
    return Pictures(np.stack(vectors), np.stack(vectors)[:, None])


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_HOME", str(tmp_path))  # the vocabulary's vectors are kept there
    plain = dict.fromkeys(LINES, Line(1.0, 0.0, 0.0, 0.0, maybe=-0.2, found=0.1))
    monkeypatch.setattr(calibration, "LINES", plain)


def test_a_claim_has_a_contest_for_each_word_that_has_rivals() -> None:
    claim = claim_of("A red wooden chair")
    colour, material, thing = claim.contests
    assert (colour.kind, material.kind, thing.kind) == ("colour", "material", "object")
    assert colour.phrase == material.phrase == "a red wooden chair"
    assert "a blue wooden chair" in colour.rivals
    assert len(colour.rivals) == len(colours()) - 1
    assert "a red metal chair" in material.rivals
    assert thing.phrase == "chair"
    assert claim.whole


@pytest.mark.parametrize(
    ("atom", "kinds", "whole"),
    [
        ("", [], True),
        ("!?", [], True),
        ("blue", ["colour"], True),
        ("orange", ["colour"], True),
        ("an orange", ["object"], True),
        ("orange shirt", ["colour", "object"], True),
        ("old man", ["person"], True),
        ("gray wool hat", ["colour", "material", "object"], True),
        ("floral dress", ["object"], False),
        ("a man riding a bike", ["person", "object"], False),
        ("short sleeves", [], False),
        ("dark skin", [], False),
        ("three", [], False),
        ("kurta", ["object"], True),
        ("two dogs", ["object"], False),
        ("three kurtas", [], False),
    ],
)
def test_words_without_rivals_leave_an_atom_unchecked(atom: str, kinds: list[str], whole: bool) -> None:
    claim = claim_of(atom)
    assert [contest.kind for contest in claim.contests] == kinds
    assert claim.whole is whole


def test_what_may_be_true_at_once_is_no_rival() -> None:
    rivals = {name: set(claim_of(name).contests[0].rivals) for name in ("shirt", "man", "child", "astronaut", "person")}
    assert not rivals["shirt"] & {"shirt", "t-shirt", "blouse"}
    assert {"dress", "trousers"} <= rivals["shirt"]
    assert {"woman", "boy", "dog"} <= rivals["man"]
    assert not rivals["man"] & {"man", "old man", "astronaut", "person"}
    assert not rivals["child"] & {"boy", "girl", "baby"}
    assert {"nurse", "dog"} <= rivals["astronaut"]
    assert not rivals["astronaut"] & {"man", "woman", "person"}
    assert not rivals["person"] & {"man", "nurse", "crowd"}


def test_no_atom_is_its_own_rival_and_none_is_said_twice() -> None:
    for atom in ("red red shirt", "one dog", "wooden chair and glass table", "the glass", "man and woman"):
        for contest in claim_of(atom).contests:
            assert contest.phrase not in contest.rivals
            assert len(set(contest.rivals)) == len(contest.rivals)
            assert contest.rivals


def test_margins_are_their_definition() -> None:
    draw = np.random.default_rng(5)
    names = [f"phrase {i}" for i in range(6)]
    encoder = Spoken({name: unit(draw.normal(size=DIM)) for name in names})
    pictures = Pictures(unit(draw.normal(size=(4, DIM))), unit(draw.normal(size=(4, 9, DIM))))
    contest = Contest("colour", names[0], tuple(names[1:]))
    usual = {names[2]: 0.25}
    won = contested(contest, dict(zip(names, fit(names, pictures, encoder), strict=True)), usual)
    mean = calibration.rivals_of_things(encoder)[1].astype(np.float64)
    for place in range(4):
        fits = []
        for name in names:
            vector = encoder._vectors[name] - calibration.CENTRING * mean
            vector = vector / np.linalg.norm(vector)
            peak = max(vector @ one for one in pictures.local_vectors[place])
            fits.append(vector @ pictures.global_vectors[place] + peak)
        together = TEMPERATURE * np.log(np.sum(np.exp(np.array(fits[1:]) / TEMPERATURE)))
        assert won.margin[place] == pytest.approx(fits[0] - together, abs=1e-5)
        assert won.better_rivals[place] == pytest.approx(np.log1p(sum(one > fits[0] for one in fits[1:])))
        fits[2] -= 0.25
        together = TEMPERATURE * np.log(np.sum(np.exp(np.array(fits[1:]) / TEMPERATURE)))
        assert won.over_usual[place] == pytest.approx(fits[0] - together, abs=1e-5)


def test_the_colour_that_fits_best_is_found_and_a_tie_is_not() -> None:
    encoder = Spoken({"blue": axis(1, 0), "red": axis(0, 1)})
    shown = picture(axis(1, 0), axis(0, 1), axis(1, 1), axis(1, 0.7))
    assert words_of(["blue", "red"], shown, encoder) == [
        ["found", "not found", "maybe", "found"],
        ["not found", "found", "maybe", "not found"],
    ]


def test_each_word_of_an_atom_must_be_right() -> None:
    encoder = Spoken(
        {"blue dress": axis(1, 0, 1), "red dress": axis(0, 1, 1), "dress": axis(0, 0, 1), "dog": axis(0, 0, 0, 1)}
    )
    blue_dress, red_dress, blue_dog = axis(1, 0, 1), axis(0, 1, 1), axis(1, 0, 0, 2)
    assert words_of(["blue dress"], picture(blue_dress, red_dress, blue_dog), encoder) == [
        ["found", "not found", "not found"]
    ]
    assert words_of(["floral dress"], picture(blue_dress, blue_dog), encoder) == [["maybe", "not found"]]
    assert words_of(["short sleeves", ""], picture(blue_dress), encoder) == [[None], [None]]
    assert words_of([], picture(blue_dress), encoder) == []


def test_a_thing_that_the_vocabulary_does_not_name_must_beat_all_that_it_names() -> None:
    encoder = Spoken({"zorb": axis(1), "ball": axis(0, 1)})
    assert words_of(["zorb"], picture(axis(1), axis(0, 1)), encoder) == [["found", "not found"]]


def test_a_kind_that_is_wrong_too_often_is_never_ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        calibration, "LINES", {**calibration.LINES, "colour": Line(1.0, 0.0, 0.0, 0.0, maybe=-0.2, found=np.inf)}
    )
    encoder = Spoken({"blue": axis(1, 0), "red": axis(0, 1)})
    assert words_of(["blue"], picture(axis(1, 0), axis(0, 1)), encoder) == [["maybe", "not found"]]


def test_each_phrase_is_encoded_once_per_encoder() -> None:
    encoder = Spoken({})
    shown = picture(axis(1))
    words_of(["blue shirt", "red shirt", "wooden chair"], shown, encoder)
    first = list(encoder.encoded)
    assert [first.count(phrase) for phrase in ("blue shirt", "green shirt", "metal chair")] == [1, 1, 1]
    words_of(["red shirt", "wooden chair", "shirt"], shown, encoder)
    assert encoder.encoded == first


def test_a_line_weighs_the_margins_and_the_better_rivals_of_a_colour_and_of_its_thing() -> None:
    names = ["blue shirt", "red shirt", "shirt", "dog"]
    contests = Contest("colour", names[0], (names[1],)), Contest("object", names[2], (names[3],))
    fits = {name: np.array([fit]) for name, fit in zip(names, (0.5, 0.4, 0.3, 0.6), strict=True)}
    usual = {"red shirt": 0.3}
    colour, thing = (contested(contest, fits, usual) for contest in contests)
    line = Line(2.0, 3.0, 5.0, 7.0, maybe=0.0, found=1.0, of_thing=(11.0, 13.0, 17.0, 19.0))
    odds = 2 * 0.1 + 3 * 0.4 + 5 * 0 + 7 + 11 * -0.3 + 13 * -0.3 + 17 * np.log(2) + 19
    assert line(colour, thing) == pytest.approx([odds])
    assert line(colour) == pytest.approx([2 * 0.1 + 3 * 0.4 + 7])


def test_what_phrases_usually_fit_is_a_mean_over_the_gallery_that_few_pictures_say_little_of(gallery: Gallery) -> None:
    shown = Pictures.of(gallery, gallery.ids())
    means = fit(["red", "blue"], shown, gallery.encoder).mean(axis=1)
    share = len(gallery) / (len(gallery) + 16)
    known = usual_fits(["red", "blue"], gallery)
    assert [known["red"], known["blue"]] == pytest.approx((share * means).tolist(), abs=1e-6)


FLAGS = [("red", "white"), ("green", "blue"), ("yellow", "black"), ("purple", "orange"), ("blue", "white", "red")]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    folder = tmp_path_factory.mktemp("marks")
    write_flags(folder / "p", FLAGS)
    return Gallery.build(folder / "g", folder / "p", FakeEncoder())


def told(gallery: Gallery, spec: EditSpec, **options: Any) -> dict[str, dict[tuple[str, str], str | None]]:
    ranking = tapr.search(gallery, "red-white.png", spec=spec, **options)
    return {
        hit.id: {(part.factor, part.text): mark for part, mark in zip(hit.contributions, row, strict=True)}
        for hit, row in zip(ranking.hits, marks(ranking), strict=True)
    }


def test_marks_stand_at_the_atoms_of_each_hit_alone(gallery: Gallery) -> None:
    found = told(gallery, EditSpec("a flag", add=["blue"], preserve=["white"], remove=["yellow"]), k=4)
    assert len(found) == 4
    for marked in found.values():
        named = {key for key, mark in marked.items() if mark}
        assert {factor for factor, _ in named} <= {"add", "preserve", "remove"}
    assert found["yellow-black.png"]["add", "blue"] == "not found"


def test_nothing_is_said_where_all_pictures_agree(gallery: Gallery) -> None:
    found = told(gallery, EditSpec("a flag", add=["blue", "pink"]), k=4)
    assert {marked["add", "pink"] for marked in found.values()} == {None}
    assert len({marked["add", "blue"] for marked in found.values()}) > 1
    (alone,) = told(gallery, EditSpec("a flag", add=["pink"]), k=1).values()
    assert alone["add", "pink"] == "not found", "one picture agrees with none"


def test_without_hits_or_explanations_there_are_no_marks(gallery: Gallery) -> None:
    nothing = tapr.search(gallery.select("width > 100000"), spec=EditSpec("a flag", add=["blue"]))
    assert marks(nothing) == []
    found = tapr.search(gallery, spec=EditSpec("a flag", add=["blue"]))
    bare = replace(found, hits=tuple(replace(hit, contributions=()) for hit in found.hits))
    assert marks(bare) == [()] * len(bare.hits)
    wordless = tapr.search(gallery, "red-white.png", spec=EditSpec("a flag"))
    assert {mark for row in marks(wordless) for mark in row} == {None}


def test_what_people_read() -> None:
    assert [said(+1, word) for word in ("found", "maybe", "not found", None)] == ["found", "maybe", "", ""]
    assert [said(-1, word) for word in ("found", "maybe", "not found", None)] == ["still there", "", "mostly gone", ""]
    assert [is_met(+1, word) for word in ("found", "maybe", "not found", None)] == [True, None, False, None]
    assert [is_met(-1, word) for word in ("found", "maybe", "not found", None)] == [False, None, True, None]
