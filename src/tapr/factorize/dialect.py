"""Which parts of a request a server accepts: first all are sent, then one refused part less at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# how the answer's form is demanded: the OpenAI way, vLLM's own way, that of older vLLM, and by the prompt alone
FORMATS = ("json_schema", "structured_outputs", "guided_json", "prompt alone")

_ABOUT_FORMAT = re.compile(r"response_format|schema|structured|guided|grammar|strict", re.IGNORECASE)
_ABOUT_THINKING = re.compile(r"chat_template_kwargs|enable_thinking", re.IGNORECASE)
_ABOUT_COUNT = re.compile(
    r"\bn\b.{0,20}(must|should|only|at most|not support|unsupported|> ?1)|n ?[=>] ?1|multiple c(hoices|ompletions)"
)
_ABOUT_SIZE = re.compile(r"context|too (long|large|many)|maximum.*(tokens|length)", re.IGNORECASE)


@dataclass(frozen=True)
class Draw:
    """A way to draw answers: the likeliest one, or several by chance."""

    temperature: float = 0.0
    count: int = 1


LIKELIEST = Draw()


@dataclass(frozen=True)
class AnswerForm:
    """The JSON form that an answer must have."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Dialect:
    form: str = "json_schema"  # one of FORMATS
    thinking_switch: bool = True  # send enable_thinking=false
    temperature: bool = True  # send the temperature
    new_limit: bool = False  # max_completion_tokens for max_tokens
    many: bool = True  # several answers to one request

    def fields(self, form: AnswerForm, draw: Draw, max_tokens: int) -> dict[str, Any]:
        """Return the fields of a request beside its model and messages."""
        fields: dict[str, Any] = {"max_completion_tokens" if self.new_limit else "max_tokens": max_tokens}
        if self.temperature:
            fields["temperature"] = draw.temperature
        if self.many and draw.count > 1:
            fields["n"] = draw.count
        if self.thinking_switch:
            fields["chat_template_kwargs"] = {"enable_thinking": False}
        if self.form == "json_schema":
            named = {"name": form.name, "strict": True, "schema": form.schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": named}
        elif self.form == "structured_outputs":
            fields["structured_outputs"] = {"json": form.schema}
        elif self.form == "guided_json":
            fields["guided_json"] = form.schema
        return fields

    def after_refusal(self, message: str) -> Dialect | None:
        """Return the next thing to try after this refusal; None when nothing is left to drop."""
        if "max_completion_tokens" in message and not self.new_limit:
            return replace(self, new_limit=True)
        if self.many and _ABOUT_COUNT.search(message):
            return replace(self, many=False)
        if _ABOUT_SIZE.search(message) and not _ABOUT_FORMAT.search(message):
            return None
        if self.temperature and "temperature" in message:
            return replace(self, temperature=False)
        if self.thinking_switch and (_ABOUT_THINKING.search(message) or not _ABOUT_FORMAT.search(message)):
            return replace(self, thinking_switch=False)
        position = FORMATS.index(self.form) + 1
        return replace(self, form=FORMATS[position]) if position < len(FORMATS) else None

    def notes(self) -> tuple[str, ...]:
        """Say what the server refused; nothing when it took everything."""
        notes = []
        if self.form == FORMATS[-1]:
            notes.append("the server refuses every JSON schema: the answer's form was asked for in words only")
        elif self.form != FORMATS[0]:
            notes.append(f"the server refuses response_format json_schema: {self.form} was sent instead")
        if not self.thinking_switch:
            notes.append("the server refuses chat_template_kwargs: thinking may be on")
        if not self.temperature:
            notes.append("the server refuses a temperature: answers are drawn at its own")
        return tuple(notes)
