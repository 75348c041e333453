"""Removes secrets and control characters from text of unknown origin before it is shown or stored.

File names, tables, model answers and errors of other programs may contain a key, or an escape sequence that a terminal
would execute. Messages, logs, records and JSON output all pass through here.
"""

from __future__ import annotations

import os
import re
import unicodedata

_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")  # endings of environment variables that hold secrets
_MIN_SECRET_CHARACTERS = 8  # shorter values are not replaced, since they would match ordinary words
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")  # user:password@ in a URL
_IN_QUERY = re.compile(r"([?&](?:api[-_]?key|key|token|access_token|secret|password|sig|signature)=)[^&\s\"'<>]+", re.I)
_JOINER = "\u200d"  # joins several characters to one emoji

_told: set[str] = set()


def remember_secret(value: str) -> None:
    """Register a secret that was given as an option and is not in the environment."""
    if len(value) >= _MIN_SECRET_CHARACTERS:
        _told.add(value)


def without_secrets(text: str) -> str:
    """Replace known keys and tokens, and credentials in URLs, by ***."""
    known = {
        value
        for name, value in os.environ.items()
        if name.endswith(_SECRET_NAMES) and len(value) >= _MIN_SECRET_CHARACTERS
    }
    for value in sorted(known | _told, key=len, reverse=True):  # longest first: one secret may be a prefix of another
        text = text.replace(value, "***")
    return _IN_QUERY.sub(r"\1***", _IN_URL.sub("***", text))


def printable(text: str, keep: str = "") -> str:
    """Escape control characters, lone surrogates and text-direction marks the way Python does: \\x1b."""
    return "".join(
        letter if letter.isprintable() or letter in keep or _is_harmless(letter) else _escaped(letter)
        for letter in text
    )


def printable_json(text: str) -> str:
    """Escape the same characters in JSON text, with JSON's own escapes."""
    return "".join(
        letter if letter == "\n" or _is_harmless(letter) else "".join(f"\\u{unit:04x}" for unit in _utf16(letter))
        for letter in text
    )


def _is_harmless(letter: str) -> bool:
    return (
        letter.isprintable() or letter == _JOINER or unicodedata.category(letter) == "Zs"
    )  # "Zs" covers spaces other than the ordinary one


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _utf16(letter: str) -> list[int]:
    data = letter.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2)]
