"""Which arithmetics agree, what a card says of them, and how an encoder is chosen for a gallery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapr.encoders.arithmetic import FLOAT16, FLOAT32, ROWS, STORED, VARIABLE, agree, asked_for
from tapr.encoders.base import EncoderCard
from tapr.encoders.registry import default_arithmetic, refuse_other
from tapr.errors import BadInput

CARD = EncoderCard("clip-b16", "0" * 64, 512, (7, 7), "clearclip", 224, "crop", arithmetic=ROWS)


@pytest.mark.parametrize(("one", "other"), [(ROWS, FLOAT32), (ROWS, FLOAT16), (FLOAT16, FLOAT32), (STORED, STORED)])
def test_those_that_agree_are_compared(one: str, other: str) -> None:
    assert agree(one, other)
    refuse_other(replace(CARD, arithmetic=one), replace(CARD, arithmetic=other))


@pytest.mark.parametrize("other", [ROWS, FLOAT32, FLOAT16, "of a later tapr"])
def test_those_that_do_not_are_refused(other: str) -> None:
    assert not agree(STORED, other)
    with pytest.raises(BadInput, match="arithmetic"):
        refuse_other(replace(CARD, arithmetic=STORED), replace(CARD, arithmetic=other))


def test_other_differences_are_refused_as_before() -> None:
    with pytest.raises(BadInput, match="fit 'pad'"):
        refuse_other(replace(CARD, fit="pad", arithmetic=FLOAT32), CARD)


def test_a_card_without_arithmetic_is_of_the_stored_one() -> None:
    old = replace(CARD, arithmetic=STORED)
    assert "arithmetic" not in old.to_dict()  # byte for byte as it was written before
    assert EncoderCard.from_dict(old.to_dict()) == old
    assert EncoderCard.from_dict(CARD.to_dict()) == CARD
    assert CARD.to_dict()["arithmetic"] == ROWS


def test_the_variable_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert asked_for() is None
    assert default_arithmetic(CARD) == ROWS
    monkeypatch.setenv(VARIABLE, FLOAT32)
    assert asked_for() == default_arithmetic(CARD) == FLOAT32
    assert asked_for(STORED) == STORED  # what is given in words counts more
    assert default_arithmetic(replace(CARD, name="fake", arithmetic=STORED)) == STORED
    monkeypatch.setenv(VARIABLE, "int4")
    with pytest.raises(BadInput, match=f"{VARIABLE} is 'int4'"):
        asked_for()
    with pytest.raises(BadInput, match="unknown arithmetic 'bf8'"):
        asked_for("bf8")
