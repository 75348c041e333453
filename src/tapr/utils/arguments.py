"""Checks the arguments of public functions. A wrong value is refused with one sentence."""

from __future__ import annotations

import os
from pathlib import Path

from tapr.errors import BadInput


def folder_of(path: object) -> Path:
    """Return a gallery's folder."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise BadInput(f"a gallery is named by the path of its folder, not by {shown_value(path)}", code="no_gallery")
    if "\0" in os.fspath(path):
        raise BadInput("the path of a gallery holds a zero character, which no path can", code="no_gallery")
    return Path(os.path.expanduser(path))


def shown_value(value: object) -> str:
    """Return a value as it appears in an error message, shortened."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        try:
            shown = repr(value)
        except ValueError:  # Python refuses to print numbers of more than 4300 digits
            return "so large a number"
        return shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"a value of the type {type(value).__name__}"
