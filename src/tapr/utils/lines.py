"""The lines of a text file, as JSONL and editors count them."""

from __future__ import annotations


def lines_of(text: str) -> list[str]:
    """Split at line feeds only, with or without a carriage return before them.

    str.splitlines also splits at U+2028, U+0085 and others, which may be part of a JSON string or a name.
    """
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
