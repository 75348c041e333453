from __future__ import annotations

import pytest

from tapr.factorize.caption import edit_caption
from tapr.factorize.caption.parse import parse
from tapr.factorize.wishes import read_wish
from tests.factorize.caption_pairs import PAIRS, wrong_parts


@pytest.mark.parametrize(("kept", "floor"), [(False, 0.95), (True, 0.80)])
def test_specs_are_those_a_person_wrote(kept: bool, floor: float) -> None:
    rows = [row for row in PAIRS if row["kept"] == kept]
    missed = [f"{row['caption']} | {row['edit']}" for row in rows if wrong_parts(row)]
    assert len(rows) == 75
    assert len(missed) <= (1 - floor) * len(rows), missed


@pytest.mark.parametrize(
    "caption",
    [
        "a man in a black shirt and jeans is jumping up in the air near a fountain",
        "a herd of sheep grazing on a lush green hillside",
        "a school bus is parked on the side of the road",
        "women's navy blue sports shoes",
        "an emoji of woman health worker medium-dark skin tone",
        "a black and white cat laying on a bed",
        "",
    ],
)
def test_a_caption_that_nothing_is_done_to_stays_as_it_is(caption: str) -> None:
    assert parse(caption).as_text() == caption


def test_the_parts_of_a_caption() -> None:
    pieces = parse("a large herd of brown cows standing in the grass").phrases
    assert [(one.measure, [str(m.text) for m in one.modifiers], one.head) for one in pieces] == [
        ("large herd of", ["brown"], ["cows"]),
        ("", [], ["grass"]),
    ]
    person, tone = parse("an emoji of man firefighter medium-dark skin tone").phrases
    assert (person.who, person.doing) == ("man", "firefighter")
    assert tone.is_tone


def made(caption: str, edit: str, *, sure: bool = True) -> tuple[str, set[str], set[str], set[str]]:
    edited = edit_caption(caption, read_wish(edit, caption).reading, sure=sure)
    return edited.target, set(edited.add), set(edited.preserve), set(edited.remove)


@pytest.mark.parametrize(
    ("caption", "edit", "target", "add", "preserve", "remove"),
    [
        ("a red car", "make it blue", "a blue car", {"blue car"}, {"car"}, {"red car"}),
        ("a dog on a sofa", "a cat instead", "a cat on a sofa", {"cat"}, {"sofa"}, {"dog"}),
        ("a dog with a ball", "no ball", "a dog", set(), {"dog"}, {"ball"}),
        ("a dog running in a park", "sleeping", "a dog sleeping in a park", {"sleeping"}, {"dog", "park"}, {"running"}),
        ("a bear in a forest", "on a beach", "a bear on a beach", {"beach"}, {"bear"}, {"forest"}),
        ("a woman in a red coat", "in blue", "a woman in a blue coat", {"blue coat"}, {"woman", "coat"}, {"red coat"}),
        ("a lamp", "a different colour", "a lamp", set(), {"lamp"}, set()),
    ],
)  # fmt: skip
def test_one_operation(
    caption: str, edit: str, target: str, add: set[str], preserve: set[str], remove: set[str]
) -> None:
    assert made(caption, edit) == (target, add, preserve, remove)


def test_the_edit_s_word_goes_before_the_caption_s_and_a_note_says_so() -> None:
    edited = edit_caption("women's white shirts", read_wish("the same blouse in red").reading)
    assert edited.target == "women's red blouses"
    assert edited.notes == ('the caption says "women\'s white shirts", the edit "blouse": the edit\'s words are used',)


def test_what_the_caption_got_wrong_is_not_removed() -> None:
    edited = edit_caption("an emoji of keycap", read_wish("a tram instead of a bus").reading)
    assert (edited.target, edited.add, edited.remove) == ("an emoji of tram", ("tram",), ("bus",))
    assert "keycap" in edited.notes[0]


def test_of_an_unsure_caption_only_what_the_edit_names_is_believed() -> None:
    caption, edit = "an emoji of face with crossed fingers", "the same face, but crying"
    assert made(caption, edit)[0] == "an emoji of crying face with crossed fingers"
    assert made(caption, edit, sure=False)[0] == "an emoji of crying face"


def test_of_an_unsure_emoji_only_who_changes() -> None:
    caption, edit = "an emoji of man cook dark skin tone", "a woman instead of a man"
    assert made(caption, edit)[0] == "an emoji of woman cook dark skin tone"
    assert made(caption, edit, sure=False) == ("an emoji of woman", {"woman"}, set(), {"man"})


def test_every_operation_is_told() -> None:
    edited = edit_caption("a red car on a street", read_wish("blue, with a dog, not on a street").reading)
    assert edited.steps == (
        'exchange colour: "red" -> "blue" (car)',
        'append: "with a dog"',
        'delete: "street"',
    )


def test_a_skin_tone_without_a_name_is_exchanged() -> None:
    """A sampled caption may say "with skin tone" and no tone."""
    caption, edit = "an emoji of man cook with skin tone", "the same person, but with medium-dark skin"
    assert made(caption, edit)[0] == "an emoji of man cook with medium-dark skin tone"
