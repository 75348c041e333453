import json

import pytest

from tapr import BadInput, EditSpec, Weights
from tests.refusals import refused


def test_a_spec_is_a_target_and_three_lists() -> None:
    spec = EditSpec(
        "a stop sign at night", add=["night sky"], preserve=("octagon",), remove=["daylight", "  english \n text "]
    )
    assert spec.add == ("night sky",)
    assert spec.remove == ("daylight", "english text")  # white space is normalised
    assert EditSpec("only a target").add == ()


def test_json_goes_in_and_comes_out_the_same() -> None:
    spec = EditSpec("a", add=["b", "ç"], remove=["d"], weights=Weights(add=2), atom_weights={"b": 3})
    assert EditSpec.from_json(spec.to_json()) == spec
    assert json.loads(spec.to_json())["atom_weights"] == {"b": 3.0}
    assert EditSpec.from_dict({"target": "a"}) == EditSpec("a")


def test_readings_stand_beside_target() -> None:
    spec = EditSpec("a dog on a beach", readings={"a  dog": 0.5, "beach": 0}, kind="place")
    assert spec.readings == (("a dog", 0.5),)  # what weighs nothing is left out
    assert spec.sentences == pytest.approx({"a dog on a beach": 2 / 3, "a dog": 1 / 3})
    assert spec.phrases == ("a dog on a beach", "a dog")
    assert EditSpec.from_json(spec.to_json()) == spec
    assert EditSpec("a", readings=["b"]) == EditSpec("a", readings={"b": 1})
    assert "readings" not in EditSpec("a").to_dict()
    assert EditSpec("a", readings=["b"]).digest() != EditSpec("a").digest()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"readings": "a dog"}, "must map a sentence"),
        ({"readings": {"a cat": 1}}, "twice"),  # Target itself
        ({"readings": ["b", "b"]}, "twice"),
        ({"readings": {"b": -1}}, "0 or more"),
        ({"readings": [" "]}, "empty"),
        ({"readings": [["b"]]}, "a sentence and its weight"),
        ({"readings": list("bcdefghij")}, "more than the 8"),
        ({"kind": "sketchy"}, "unknown kind of edit"),
    ],
)
def test_readings_and_kinds_that_cannot_be_are_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        EditSpec.from_dict({"target": "a cat", **given})


def test_equal_specs_have_equal_hashes_and_digests() -> None:
    one = EditSpec(" a  dog", add=["hat", "ball"], atom_weights={"hat": 1})
    two = EditSpec("a dog", add=("hat", "ball"))
    assert one == two
    assert hash(one) == hash(two)
    assert one.digest() == two.digest()
    assert one.digest() != EditSpec("a dog", add=("ball", "hat")).digest()
    assert one.digest() != EditSpec("a dog", add=("hat", "ball"), weights=Weights()).digest()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "no target"),
        ({"target": " "}, "target is empty"),
        ({"target": 3}, "must be text"),
        ({"target": "a" * 601}, "601 characters"),
        ({"target": "a\x00b"}, "unprintable"),
        ({"target": "a", "add": "night"}, "must be a list"),
        ({"target": "a", "add": [""]}, "atom of add is empty"),
        ({"target": "a", "add": ["x" * 161]}, "161 characters"),
        ({"target": "a", "add": [str(i) for i in range(33)]}, "33 atoms"),
        ({"target": "a", "add": ["Night Sky", "night  sky"]}, "twice in add"),
        ({"target": "a", "add": ["hat"], "remove": ["Hat"]}, "both add and remove"),
        ({"target": "a", "more_references": []}, "unknown key 'more_references'"),
        ({"target": "a", "weights": {"add": -1}}, "0 or more"),
        ({"target": "a", "weights": {"all": 1}}, "unknown weight"),
        ({"target": "a", "weights": 7}, "weights must be an object"),
        ({"target": "a", "atom_weights": {"hat": 2}}, "no atom of this spec"),
        ({"target": "a", "add": ["hat"], "atom_weights": {"hat": "big"}}, "must be a number"),
        ({"target": "a", "atom_weights": 5}, "must map an atom"),
        ([], "must be a JSON object"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(value: object, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        EditSpec.from_dict(value)


def test_broken_json_is_refused() -> None:
    with refused("bad_spec"):
        EditSpec.from_json("{")
    with refused("bad_spec"):
        EditSpec.from_file("/no/such/file.json")


def test_weights_are_read_from_numbers_or_names() -> None:
    assert Weights.parse("1,0.5,0.25,0") == Weights(1, 0.5, 0.25, 0)
    assert Weights.parse("add=0.8, remove=0") == Weights(add=0.8, remove=0)
    assert Weights.parse({"preserve": 2}) == Weights(preserve=2)
    for wrong in ("1,2,3", "a,b,c,d", "add=x", "", "1,2,3,-4", "0,0,0,0", "nan,1,1,1", "size=3"):
        with pytest.raises(BadInput):
            Weights.parse(wrong)
