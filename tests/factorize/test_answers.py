from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tapr.errors import BadInput
from tapr.factorize.answers import MAX_OBJECT_CHARACTERS, MAX_OBJECTS_TRIED, SCHEMA, read_answer
from tapr.factorize.spec_prompt import prompt_messages
from tapr.query.spec import EditSpec
from tests.refusals import refused


def answer(**factors: object) -> str:
    return json.dumps({"target": "a cat", **factors})


def test_the_last_object_with_a_target_counts() -> None:
    text = 'first {"target": "a dog"} or {"a": 1}, no: {"target": "a cat", "add": ["cat"]} {"b": [{"c": 2}]}'
    assert read_answer(text) == EditSpec("a cat", add=("cat",))


@pytest.mark.parametrize(
    ("atom", "reason"),
    [
        ("no hat", "negated"),
        ("Without a hat", "negated"),
        ("not red", "negated"),
        ("more people", "compares"),
        ("less light", "compares"),
        ("fewer cars", "compares"),
        ("sky darker than before", "compares"),
    ],
)
@pytest.mark.parametrize("factor", ["add", "preserve", "remove"])
def test_relative_and_negated_atoms_are_refused_with_a_reason(factor: str, atom: str, reason: str) -> None:
    with refused("bad_answer", repr(atom), factor, reason):
        read_answer(answer(**{factor: [atom]}))


@pytest.mark.parametrize("atom", ["notebook", "sleeveless dress", "no-entry sign", "moreland street", "nothing box"])
def test_words_that_only_look_negated_or_relative_pass(atom: str) -> None:
    assert read_answer(answer(add=[atom])).add == (atom,)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("", "empty"),
        ("sorry", "no JSON object"),
        ('{"target": "a c', "no complete JSON object"),
        ("[1, 2]", "no JSON object"),
        ("{" * 5000, "no complete JSON object"),
        (answer(weights={"add": 2}), "'weights'"),
        ('{"target": "a cat instead of a dog"}', "'instead of'"),
        (json.dumps({"target": "word " * 56}), "56 words and signs"),
    ],
)
def test_what_is_no_spec_is_refused_with_a_reason(text: str, fact: str) -> None:
    with refused("bad_answer", fact):
        read_answer(text)


def test_one_atom_in_two_factors_is_refused() -> None:
    with refused("bad_spec", "'Cat'"):
        read_answer(answer(add=["cat"], remove=["Cat"]))


def test_every_worked_example_of_the_prompt_is_an_answer_we_would_take() -> None:
    examples = re.findall(r'^\{"target".*"continuity": .*\}$', prompt_messages()["system"], flags=re.MULTILINE)
    specs = [read_answer(example) for example in examples if '"..."' not in example]
    assert len(specs) >= 6
    assert any(spec.add and spec.remove for spec in specs)
    assert {spec.continuity for spec in specs} == {0.0, None}
    assert all(not spec.preserve for spec in specs if spec.continuity == 0)


@pytest.mark.parametrize("piece", ["{", '{"', '{"a":', '{"a": "', "{}", '{"a":1}', '{"target":[', "{ "])
def test_the_time_is_linear_in_the_text(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> Any:
            lengths.append(len(s))
            return super().raw_decode(s, idx)

    monkeypatch.setattr("tapr.factorize.answers.json.JSONDecoder", Counting)
    with pytest.raises(BadInput):
        read_answer(piece * 200_000)
    assert len(lengths) <= MAX_OBJECTS_TRIED
    assert max(lengths, default=0) <= MAX_OBJECT_CHARACTERS


def test_readings_and_the_kind_are_read() -> None:
    spec = read_answer(answer(readings=["one cat"], kind="replacement"))
    assert spec.readings == (("one cat", 1.0),)
    assert spec.kind == "replacement"
    assert read_answer(answer(kind=None, readings=[])).readings == ()
    with refused("bad_answer", "'instead of'"):
        read_answer(answer(readings=["a cat instead of a dog"]))
    with refused("bad_spec", "'great'"):
        read_answer(answer(kind="great"))


def test_continuity_is_nothing_or_left_to_the_rule() -> None:
    assert read_answer(answer(continuity=0)).continuity == 0
    assert read_answer(answer(continuity=None)).continuity is None
    assert read_answer(answer()).continuity is None


@pytest.mark.parametrize("value", [0.5, 1, "0", False, [0]])
def test_other_continuities_are_refused_with_a_reason(value: object) -> None:
    with refused("bad_spec" if value is False else "bad_answer", "0"):
        read_answer(answer(continuity=value))


def test_the_schema_takes_what_is_read() -> None:
    assert SCHEMA["required"] == list(SCHEMA["properties"])
    assert SCHEMA["properties"]["continuity"]["enum"] == [0, None]
