"""Name the numbers in which clip-b16's image tower can compute, and what runs on which processor.

A gallery's card names the arithmetic of its vectors. All rows of the table agree with float32 to a mean cosine of
MIN_MEAN_COSINE, so their vectors may be compared. benchmarks/tower.py measures it, docs/models.md has the figures.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tapr.errors import BadInput, BadOption

VARIABLE = "TAPR_ARITHMETIC"


@dataclass(frozen=True)
class Arithmetic:
    """A way to compute."""

    name: str
    what: str


ONLY = "only"  # on the card of an encoder that has one arithmetic
ROWS, FLOAT16 = "int8-rows", "float16"
ARITHMETICS = {
    row.name: row
    for row in (
        Arithmetic(ROWS, "8-bit products with a scale per token, the few largest columns in float32"),
        Arithmetic(FLOAT16, "float16, on a GPU"),
    )
}
MIN_MEAN_COSINE = 0.999  # the least mean cosine of a row of the table with float32


@dataclass(frozen=True)
class Runtime:
    """The library and arithmetic that run the default on a kind of processor."""

    runs: str
    arithmetic: str
    careful: bool = False  # onnxruntime is told to add 8-bit products exactly, at half the rate


# Chosen by measurement (benchmarks/results/tower_*.md). Which row a processor is in is asked of it: onnx_session.py
# multiplies large bytes once and looks whether their sum is right.
PROCESSORS = {
    "exact": Runtime("onnxruntime", ROWS),  # x86 with AMX or VNNI, Arm
    "saturating": Runtime("onnxruntime", ROWS, careful=True),  # x86 without VNNI: sums of 16 bits would be cut off
    "gpu": Runtime("torch", FLOAT16),
}


def agree(name: str, other: str) -> bool:
    """Return whether vectors of the two may be compared."""
    return name == other or {name, other} <= ARITHMETICS.keys()


def asked_for(given: str | None = None) -> str | None:
    """Return the arithmetic that the argument names, or else TAPR_ARITHMETIC; None where neither does."""
    name = given or os.environ.get(VARIABLE)
    if not name:
        return None
    if name in ARITHMETICS:
        return name
    choices = f"choose one of {', '.join(ARITHMETICS)}"
    if given:
        raise BadOption(f"unknown arithmetic {name!r}: {choices}", "arithmetic")
    raise BadInput(f"{VARIABLE} is {name!r}: {choices}", code="bad_setting")
