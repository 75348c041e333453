"""Arithmetics that agree, the cards that name them, and the choice for a gallery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapr.encoders.arithmetic import FLOAT16, ONLY, ROWS, VARIABLE, agree, asked_for
from tapr.encoders.base import EncoderCard
from tapr.encoders.registry import default_arithmetic, refuse_other
from tests.refusals import refused

CARD = EncoderCard("clip-b16", "0" * 64, 512, (7, 7), "clearclip", 224, "crop", arithmetic=ROWS)


@pytest.mark.parametrize(("one", "other"), [(ROWS, FLOAT16), (FLOAT16, ROWS), (ONLY, ONLY)])
def test_those_that_agree_are_compared(one: str, other: str) -> None:
    assert agree(one, other)
    refuse_other(replace(CARD, arithmetic=one), replace(CARD, arithmetic=other))


@pytest.mark.parametrize("other", [ONLY, "of a later tapr"])
def test_others_are_refused(other: str) -> None:
    assert not agree(ROWS, other)
    with refused("other_encoder", "arithmetic"):
        refuse_other(replace(CARD, arithmetic=other), CARD)


def test_other_differences_are_refused_as_before() -> None:
    with refused("other_encoder", "fit 'pad'"):
        refuse_other(replace(CARD, fit="pad", arithmetic=FLOAT16), CARD)


def test_a_card_is_read_as_it_was_written() -> None:
    assert EncoderCard.from_dict(CARD.to_dict()) == CARD
    assert CARD.to_dict()["arithmetic"] == ROWS


def test_the_variable_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert asked_for() is None
    assert default_arithmetic(CARD) == ROWS
    monkeypatch.setenv(VARIABLE, FLOAT16)
    assert asked_for() == default_arithmetic(CARD) == FLOAT16
    assert asked_for(FLOAT16) == FLOAT16  # what is given in words counts more
    assert default_arithmetic(replace(CARD, name="fake", arithmetic=ONLY)) == ONLY
    monkeypatch.setenv(VARIABLE, "int4")
    with refused("bad_setting", VARIABLE, "'int4'"):
        asked_for()
    with refused("bad_option", "'bf8'", option="arithmetic"):
        asked_for("bf8")
