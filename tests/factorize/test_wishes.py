from __future__ import annotations

import pytest

from tapr.factorize.languages import translated
from tapr.factorize.spelling import is_word, mended
from tapr.factorize.wishes import read_wish


@pytest.mark.parametrize(
    ("edit", "read"),
    [
        ("I love this, but please in green", "in green"),
        ("I really like this jacket but with a hood", "the same jacket, but with a hood"),
        ("Looks good, but can I have it in blue?", "in blue?"),
        ("could you make it a woman?", "make it a woman?"),
        ("Hello! I'd like something with sleeves, thanks", "with sleeves"),
        ("instead of a dog there is a cat", "a cat instead of a dog"),
        ("for women", "women's"),
        ("no print please, just plain", "no print , plain"),
    ],
)
def test_what_is_said_around_the_edit_is_left_out(edit: str, read: str) -> None:
    assert read_wish(edit).text == read


@pytest.mark.parametrize("edit", ["something nicer", "surprise me", "a better one", "I don't know"])
def test_a_vague_wish_says_nothing(edit: str) -> None:
    reading = read_wish(edit).reading
    assert (reading.add, reading.remove, reading.keep) == ((), (), ())


def test_more_and_less_of_what_cannot_be_counted() -> None:
    def added(edit: str) -> list[str]:
        return [atom.text for atom in read_wish(edit).reading.add]

    assert added("with more cheese") == ["cheese"]
    assert added("more heel") == ["high heels"]
    assert added("more people") == ["many people"]
    assert read_wish("less fur").reading.remove == ("fur",)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("yelow", "yellow"), ("wihtout", "without"), ("sleves", "sleeves"), ("shrit", "shirt"), ("datk", "dark"),
     ("burgandy", "burgundy"), ("backgroud", "background")],
)  # fmt: skip
def test_slips_are_put_right_and_said(slip: str, meant: str) -> None:
    assert mended(slip) == (meant, ((slip, meant),))


@pytest.mark.parametrize(
    "word", ["flask", "beagle", "taupe", "cowl", "tote", "soles", "shrugging", "tshirts", "biking"]
)
def test_a_word_is_never_changed(word: str) -> None:
    assert is_word(word)
    assert mended(word) == (word, ())


def test_a_caption_s_own_words_are_known() -> None:
    assert mended("without the zorblaxes", ["zorblaxes"]) == ("without the zorblaxes", ())
    assert mended("without the zorblxes", ["zorblaxes"])[0] == "without the zorblaxes"


@pytest.mark.parametrize(
    ("edit", "language", "english"),
    [
        ("in Blau, bitte", "German", "in blue,"),
        ("ein Flugzeug statt einem Schiff", "German", "a airplane instead of a ship"),
        ("une robe noire avec manches longues", "French", "a black dress with long sleeves"),
        ("en rojo", "Spanish", "in red"),
        ("con capelli lunghi", "Italian", "with hair lunghi"),
        ("uma bolsa azul", "Portuguese", "a blue bag"),
    ],
)
def test_other_languages_are_read_by_a_small_table(edit: str, language: str, english: str) -> None:
    translation = translated(edit)
    assert translation is not None
    assert (translation.language, translation.text) == (language, english)
    assert language in read_wish(edit).notes[0]


def test_what_no_table_has_is_said_not_to_be_english() -> None:
    wish = read_wish("その色を青に")
    assert wish.is_foreign
    assert "not in English" in wish.notes[0]


@pytest.mark.parametrize(
    "edit", ["in red", "a rose", "make it blue with white dots", "orange", "a gold chain", "zorblax"]
)
def test_english_is_left_alone(edit: str) -> None:
    assert translated(edit) is None
