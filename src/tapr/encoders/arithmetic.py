"""In which numbers clip-b16's image tower computes: the classes, which of them agree, and what runs on which processor.

A gallery's card names the class of its vectors. Those that were measured to agree are compared with one another; a
gallery of another class is searched in its own. benchmarks/tower.py measures all of this, docs/models.md has the table.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tapr.errors import BadInput

VARIABLE = "TAPR_ARITHMETIC"


@dataclass(frozen=True)
class Arithmetic:
    """One class. `cosine`: of a global vector with that of float32, on average, as benchmarks/tower.py measured it."""

    name: str
    what: str
    cosine: float


STORED = "stored"  # what every gallery had before cards named a class; other encoders have only one, and say this too
ROWS, FLOAT32, FLOAT16 = "int8-rows", "float32", "float16"
ARITHMETICS = {
    row.name: row
    for row in (
        Arithmetic(ROWS, "8-bit products with a scale per token, the few largest columns in float32", 0.9997),
        Arithmetic(FLOAT32, "float32", 1.0),
        Arithmetic(FLOAT16, "float16, on a GPU", 0.9999),
        Arithmetic(STORED, "8-bit products with one scale per picture, as the file of the weights has them", 0.98),
    )
}
AGREE = 0.999  # from this cosine on, classes are compared with one another


@dataclass(frozen=True)
class Engine:
    """What runs the default on a kind of processor."""

    runs: str
    arithmetic: str
    careful: bool = False  # onnxruntime is told to add 8-bit products exactly, at half the rate


# Chosen by measurement (benchmarks/results/tower_*.md). Which row a processor is in is asked of it: onnx_session.py
# multiplies large bytes once and looks whether their sum is right.
PROCESSORS = {
    "exact": Engine("onnxruntime", ROWS),  # x86 with AMX or VNNI, Arm
    "saturating": Engine("onnxruntime", ROWS, careful=True),  # x86 without VNNI: sums of 16 bits would be cut off
    "gpu": Engine("torch", FLOAT16),
}


def agree(one: str, other: str) -> bool:
    """Whether vectors of the two classes may be compared."""
    both = [ARITHMETICS.get(name) for name in (one, other)]
    return one == other or all(row is not None and row.cosine >= AGREE for row in both)


def asked_for(given: str | None = None) -> str | None:
    """The class that the argument names, or else TAPR_ARITHMETIC; None where nobody said."""
    name, said = (given, f"unknown arithmetic {given!r}") if given else (os.environ.get(VARIABLE), "")
    if not name:
        return None
    if name not in ARITHMETICS:
        raise BadInput(f"{said or f'{VARIABLE} is {name!r}'}: choose one of {', '.join(ARITHMETICS)}")
    return name
