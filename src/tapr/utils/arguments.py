"""Checks the arguments of public functions. A wrong value is refused with one sentence."""

from __future__ import annotations

import math
import operator
from typing import Any

from tapr.errors import BadInput


def count(value: object, name: str) -> int:
    """A whole number of at least 1. NumPy integers are accepted."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise BadInput(f"{name} must be a whole number, not {shown_value(value)}")
    if number < 1:
        raise BadInput(f"{name} must be 1 or more, not {number}")
    return number


def number_above_zero(value: Any, name: str) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} must be a number above 0, not {shown_value(value)}")
    return number


def text_or_none(value: object, name: str, example: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be text such as {example!r}, not {shown_value(value)}")
    return value


def shown_value(value: object) -> str:
    """A value as it appears in an error message, shortened."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        try:
            shown = repr(value)
        except ValueError:  # Python refuses to print numbers of more than 4300 digits
            return "so large a number"
        return shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"a value of the type {type(value).__name__}"
