from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tapr.factorize.grammar import read_edit
from tapr.factorize.grammar.clauses import split_clauses
from tapr.factorize.grammar.handlers import HANDLERS
from tapr.factorize.grammar.patterns import rows
from tapr.factorize.grammar.words import gerund, lexicon, plural, plural_phrase, singular, with_article
from tapr.factorize.tagged import ground
from tapr.factorize.tags import Tags

EDITS = [json.loads(line) for line in Path(__file__).with_name("data").joinpath("edits.jsonl").read_text().splitlines()]
ARTICLES = ("a", "an", "the")


def normal(atoms: Any) -> frozenset[str]:
    """Casefolded, articles dropped, order forgotten."""
    return frozenset(" ".join(word for word in atom.casefold().split() if word not in ARTICLES) for atom in atoms)


def agrees(row: dict[str, Any]) -> bool:
    given = dict(row.get("tags", {}))
    spec, _ = ground(row["edit"], read_edit(row["edit"]), Tags(given.pop("subject", ""), given))
    return normal(spec.add) == normal(row["add"]) and normal(spec.remove) == normal(row["remove"])


def added(edit: str) -> list[str]:
    return [atom.text for atom in read_edit(edit).add]


def removed(edit: str) -> list[str]:
    return list(read_edit(edit).remove)


@pytest.mark.parametrize("split", ["dev", "held-out"])
def test_add_and_remove_are_those_a_person_wrote_in_85_of_100_edits(split: str) -> None:
    rows = [row for row in EDITS if row["split"] == split]
    missed = [row["edit"] for row in rows if not agrees(row)]
    assert len(rows) >= 150
    assert len(missed) <= 0.15 * len(rows), missed


def test_the_written_edits_are_many_and_no_two_alike() -> None:
    assert len(EDITS) >= 300
    assert len({(row["edit"].casefold(), json.dumps(row.get("tags"))) for row in EDITS}) == len(EDITS)


@pytest.mark.parametrize(
    ("edit", "add", "remove"),
    [
        ("add a hat", ["hat"], []),
        ("remove the people", [], ["people"]),
        ("replace the cup with two bottles", ["two bottles"], ["cup"]),
        ("a bus instead of a train", ["bus"], ["train"]),
        ("without a belt", [], ["belt"]),
        ("the boy is no longer crying", [], ["crying"]),
        ("has no sleeves", ["sleeveless"], ["sleeves"]),
        ("less formal", ["casual"], ["formal"]),
        ("more people, fewer cars", ["many people", "few cars"], []),
        ("only one dog", ["one dog"], []),
        ("is darker", ["dark colour"], []),
        ("make the wall blue", ["blue wall"], []),
        ("the cat is sleeping", ["cat sleeping"], []),
        ("shot from above", ["seen from above"], []),
        ("no buildings and cars", [], ["buildings", "cars"]),
        ("remove the hat and add a scarf", ["scarf"], ["hat"]),
        ("is black and white", ["black and white"], []),
    ],
)
def test_one_way_of_speaking(edit: str, add: list[str], remove: list[str]) -> None:
    assert added(edit) == add
    assert removed(edit) == remove


def test_what_stays_the_same_is_kept_and_not_added() -> None:
    reading = read_edit("the same dog, but sleeping")
    assert reading.keep == ("dog",)
    assert reading.subject == "dog"
    assert [atom.text for atom in reading.add] == ["sleeping"]


def test_a_change_without_a_value_names_its_dimension() -> None:
    assert read_edit("has a different colour").changed == {"colour"}
    assert read_edit("taken from another angle").changed == {"viewpoint"}


def test_turning_the_subject_into_something_else_is_noticed() -> None:
    assert read_edit("turn it into a cat").replaces_subject
    assert not read_edit("turn it into a cartoon").replaces_subject
    assert not read_edit("turn it red").replaces_subject


def test_words_of_no_list_are_named() -> None:
    assert read_edit("add a zorblax and a hat").unknown == ("zorblax",)


def test_clauses_end_at_joints_but_not_between_colours() -> None:
    clauses = split_clauses("Is black and white, with a belt. It's longer and red")
    assert [clause.text for clause in clauses] == ["is black and white", "with a belt", "it is longer", "red"]
    assert [clause.joint for clause in clauses] == ["", ",", "", "and"]


def test_every_row_of_the_table_has_its_handler() -> None:
    assert {handler for handler, _ in rows()} <= set(HANDLERS)


def test_morphology() -> None:
    assert [gerund(verb) for verb in ("sit", "ride", "lie", "eat")] == ["sitting", "riding", "lying", "eating"]
    assert [singular(noun) for noun in ("dogs", "dress", "children", "bushes", "berries")] == [
        "dog", "dress", "child", "bush", "berry",
    ]  # fmt: skip
    assert [plural(noun) for noun in ("dog", "man", "box", "cherry", "y")] == ["dogs", "men", "boxes", "cherries", "ys"]
    assert plural_phrase("cup of tea") == "cups of tea"
    assert [with_article(thing) for thing in ("hat", "apple", "two cups", "shoes", "water")] == [
        "a hat", "an apple", "two cups", "shoes", "water",
    ]  # fmt: skip
    assert [lexicon().positive(word) for word in ("darker", "bigger", "shinier", "flower")] == [
        "dark", "large", "shiny", None,
    ]  # fmt: skip


SCRAPS = (
    "no",
    "not",
    "and",
    "with",
    "remove",
    "replace with",
    "change to",
    "of",
    "'s",
    "-",
    "number of",
    "a " * 400,
)


@pytest.mark.parametrize("edit", SCRAPS)
def test_scraps_of_edits_are_read_without_a_fault(edit: str) -> None:
    reading = read_edit(edit)
    assert all(atom.text for atom in reading.add)
