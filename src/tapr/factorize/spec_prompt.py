"""The kind of record that TAPR itself reads: a spec, asked for by a versioned prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from tapr.factorize.answers import SPEC_FORM, read_answer
from tapr.factorize.asking import RecordKind, Step
from tapr.factorize.records import SPEC

VERSION = "edit_v3"


def spec_kind(*, sees_picture: bool = True, unread: Callable[[str], str] | None = None) -> RecordKind:
    """Return the kind `spec`, for a model that sees the picture or one that reads the edit alone."""

    def read(text: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        return read_answer(text, unread).to_dict()

    messages = prompt_messages()
    user = messages["user" if sees_picture else "user without picture"]
    version = VERSION if sees_picture else f"{VERSION} without picture"
    return RecordKind(SPEC, version, (Step(user, SPEC_FORM, read, sees_picture, messages["system"]),))


@cache
def prompt_messages() -> dict[str, str]:
    """Return the texts of the prompt file by their headings."""
    text = resources.files("tapr.factorize").joinpath(f"prompts/{VERSION}.md").read_text(encoding="utf-8")
    sections = re.split(r"^# (.+)$", text, flags=re.MULTILINE)[1:]  # heading, text, heading, text, ...
    return {heading.strip(): text.strip() for heading, text in zip(sections[::2], sections[1::2], strict=True)}
