"""The words a language model is asked with: a versioned file, known by its hash."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

VERSION = "edit_v3"
_MESSAGES = ("system", "user", "user without picture", "correction")


@dataclass(frozen=True)
class SpecPrompt:
    version: str
    sha256: str  # of the file
    system: str
    user: str
    user_without_picture: str
    correction: str

    def messages(self, edit: str, picture: str | None) -> list[dict[str, Any]]:
        """`picture` is a data URL, or None when the model is to read the edit alone."""
        system = {"role": "system", "content": self.system}
        if picture is None:
            return [system, {"role": "user", "content": self.user_without_picture.replace("{edit}", edit)}]
        parts = [
            {"type": "image_url", "image_url": {"url": picture}},
            {"type": "text", "text": self.user.replace("{edit}", edit)},
        ]
        return [system, {"role": "user", "content": parts}]

    def corrected(self, messages: list[dict[str, Any]], answer: str, problem: str) -> list[dict[str, Any]]:
        """The same question, the answer that was no use and why; earlier wrong answers are not kept."""
        return [
            *messages,
            {"role": "assistant", "content": answer[:2000] or "(no answer)"},
            {"role": "user", "content": self.correction.replace("{problem}", problem)},
        ]


def load_prompt(version: str = VERSION) -> SpecPrompt:
    data = resources.files("tapr.factorize").joinpath(f"prompts/{version}.md").read_bytes()
    sections = re.split(r"^# (.+)$", data.decode(), flags=re.MULTILINE)[1:]  # heading, text, heading, text, ...
    texts = {heading.strip(): text.strip() for heading, text in zip(sections[::2], sections[1::2], strict=True)}
    return SpecPrompt(version, hashlib.sha256(data).hexdigest(), *(texts[name] for name in _MESSAGES))
