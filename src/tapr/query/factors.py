"""The factors a score is made of, one row each. Code, reports, the page and the API read this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

WordFactor = Literal["target", "add", "preserve", "remove"]  # factors expressed in words
Factor = Literal["continuity"] | WordFactor
Reads = Literal["global", "local"]


@dataclass(frozen=True)
class FactorRow:
    name: Factor
    sign: int  # -1: a match lowers the score
    reads: tuple[Reads, ...]  # which vectors of a gallery picture it is compared with
    from_words: bool  # False: its probes come from the reference picture
    weight: float | None  # default weight theta; None: given by the reference weight
    colour: tuple[int, int, int]  # distinguishable with colour blindness
    hint: str
    called: str = ""  # what people read, where it is not the name
    half_is_picture: bool = False  # with a reference, its words have half the weight and the picture the other half

    @property
    def evidence(self) -> Reads:
        """The vectors that its phrases are compared with."""
        return self.reads[0]

    @property
    def label(self) -> str:
        """Its name in reports and on the command line; the method's own stays in the API and the documentation."""
        return self.called or self.name.capitalize()

    @property
    def css(self) -> str:
        """The colour in CSS."""
        return "#{:02x}{:02x}{:02x}".format(*self.colour)


FACTORS: tuple[FactorRow, ...] = (
    FactorRow(
        "target", +1, ("global",), True, 1.0, (86, 99, 120), "the whole picture", "Looking for"
    ),
    FactorRow("add", +1, ("local",), True, 0.5, (0, 143, 122), "what must be there"),
    FactorRow(
        "preserve", +1, ("local",), True, 0.5, (44, 102, 214), "what is kept", "Keep", half_is_picture=True
    ),
    FactorRow(
        "continuity", +1, ("global", "local"), False, None, (124, 77, 178),
        "how much it should look like your picture", "Likeness",
    ),
    FactorRow("remove", -1, ("local",), True, 0.3, (214, 72, 32), "what to avoid", "Leave out"),
)  # fmt: skip

BY_NAME: dict[Factor, FactorRow] = {row.name: row for row in FACTORS}
WORD_FACTORS: tuple[WordFactor, ...] = tuple(name for name in get_args(WordFactor) if BY_NAME[name].from_words)
PRIOR: dict[Factor, float] = {row.name: row.weight for row in FACTORS if row.weight is not None}  # the default theta
