"""Checks the arguments of public functions. A wrong value is refused with one sentence."""

from __future__ import annotations

from tapr.errors import BadInput


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
