"""Text that came from elsewhere, before it is shown or kept: without secrets, without control characters.

File names, tables, models' answers and errors of other programs may hold a key, or an escape sequence that a terminal
would obey. Messages, logs, records and JSON all go through here.
"""

from __future__ import annotations

import os
import re
import unicodedata

_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")  # how variables of the environment end that hold one
_SHORTEST = 8  # a shorter one would blot out ordinary words
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")  # user and password
_IN_QUERY = re.compile(r"([?&](?:api[-_]?key|key|token|access_token|secret|password|sig|signature)=)[^&\s\"'<>]+", re.I)
_JOINER = "\u200d"  # holds an emoji together

_told: set[str] = set()


def remember_secret(value: str) -> None:
    """A secret that was given as an option and stands nowhere in the environment."""
    if len(value) >= _SHORTEST:
        _told.add(value)


def without_secrets(text: str) -> str:
    """Keys and tokens that this process knows are blotted out, and what stands in their place in an address."""
    known = {value for name, value in os.environ.items() if name.endswith(_SECRET_NAMES) and len(value) >= _SHORTEST}
    for value in sorted(known | _told, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(value, "***")
    return _IN_QUERY.sub(r"\1***", _IN_URL.sub("***", text))


def printable(text: str, keep: str = "") -> str:
    """Control characters, halves of surrogate pairs and turned reading directions as Python writes them: \\x1b."""
    return "".join(
        letter if letter.isprintable() or letter in keep or _is_harmless(letter) else _escaped(letter)
        for letter in text
    )


def printable_json(text: str) -> str:
    """The same for a JSON text, where they can only stand inside strings."""
    return "".join(
        letter if letter == "\n" or _is_harmless(letter) else "".join(f"\\u{unit:04x}" for unit in _utf16(letter))
        for letter in text
    )


def _is_harmless(letter: str) -> bool:
    return (
        letter.isprintable() or letter == _JOINER or unicodedata.category(letter) == "Zs"
    )  # other spaces than the ordinary one


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _utf16(letter: str) -> list[int]:
    data = letter.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2)]
