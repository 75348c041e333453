from __future__ import annotations

from tapr.methods import METHODS, make_method
from tapr.methods.ldre import CAPTIONS
from tapr.methods.record_kinds import derive, sampled_captions_needed
from tapr.methods.stitch import DESCRIPTIONS
from tapr.query.spec import EditSpec

SPEC = EditSpec("a red car at night", ("red paint",), ("car",), ("blue paint",))


def test_every_method_gets_its_record_from_one_spec_and_one_caption() -> None:
    made = derive(SPEC, "make it red", "a blue car")
    assert {kind for name in METHODS for kind in make_method(name).kinds} == {*made, "wiser"}  # no rule sees a gallery
    assert made["cirevl"] == {"caption": "a blue car", "description": SPEC.target}
    assert made["cotmr"]["existent"] == ["red paint", "car"]
    assert made["soft"]["proscriptive"] == "blue paint"


def test_no_method_knows_more_than_the_spec_the_edit_and_the_caption() -> None:
    made = derive(SPEC, "make it red", "a blue car")
    known = {*SPEC.target.split(), "red", "paint", "car", "blue", "make", "it", "a"}
    wording = {"a", "picture", "of", "an", "illustration", "this", "shows", "on", "plain", "background"}
    words = " ".join(str(value) for payload in made.values() for value in payload.values())
    said = set(words.replace(",", " ").replace("[", " ").replace("]", " ").replace("'", " ").split())
    assert said <= known | wording


def test_captions_drawn_by_chance_take_the_place_of_wordings() -> None:
    drawn = [(f"blue car {number}", f"red car {number}") for number in range(CAPTIONS)]
    made = derive(SPEC, "make it red", "a blue car", drawn)
    assert made["ldre"]["captions"] == [before for before, _ in drawn]
    assert made["ldre"]["edited"] == [after for _, after in drawn]
    assert made["stitch"]["descriptions"] == made["ldre"]["edited"][:DESCRIPTIONS]
    assert made["cirevl"]["description"] == SPEC.target
    needed = [sampled_captions_needed(kinds) for kinds in ({"spec", "cirevl"}, {"stitch"}, {"stitch", "ldre"})]
    assert needed == [0, 5, 15]


def test_without_a_caption_the_methods_that_need_one_have_no_record() -> None:
    made = derive(SPEC, "make it red", None)
    assert "cirevl" not in made
    assert "ldre" not in made
    assert "spec" in made
