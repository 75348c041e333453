"""Asks a language model for records of one kind, step by step, each step until its answer is valid.

A kind of record is a table of steps. TAPR's spec is one kind (spec_prompt.py), and each compared system has its own
(methods/record_prompts.py). All of them are asked, corrected and counted here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any

from tapr.errors import BadInput
from tapr.factorize.chat import Chat, Reply, require_httpx
from tapr.factorize.dialect import LIKELIEST, AnswerForm, Dialect, Draw
from tapr.factorize.failures import NoAnswer
from tapr.factorize.picture import data_url
from tapr.factorize.records import Maker, RecordAnswer, plain
from tapr.factorize.settings import LLMSettings
from tapr.query.reference import Reference
from tapr.utils.amounts import counted
from tapr.utils.safe_text import without_secrets

Message = dict[str, Any]
AskModel = Callable[[list[Message], AnswerForm, Draw], Awaitable[Reply]]
Ask = Callable[[Reference, str], Awaitable[RecordAnswer]]
# an answer and the fields before it -> the fields that it fills; BadInput tells the model what is wrong
Read = Callable[[str, Mapping[str, Any]], dict[str, Any]]

_CORRECTION = """\
That answer cannot be used: {problem}
Correct this and answer again with the whole JSON object alone."""
_PLACES = re.compile(r"\{(edit|item|answers)\}")
_MAX_CHARACTERS_SENT_BACK = 2000  # of an invalid answer


@dataclass(frozen=True)
class Step:
    """One question of a kind. Later steps read the earlier answers; only some see the picture."""

    text: str  # with {edit}, {answers} and {item} where they belong
    form: AnswerForm
    read: Read
    sees_picture: bool = True
    system: str = ""
    list_name: str = ""  # the answers, each one text, become this list
    draw: Draw = LIKELIEST
    each: str = ""  # the list that it goes through, one request for each text

    def messages(self, edit: str, answers: Mapping[str, Any], picture: str, item: str) -> list[Message]:
        values = {"edit": edit, "item": item, "answers": json.dumps(answers, ensure_ascii=False)}
        text = _PLACES.sub(lambda place: values[place[1]], self.text)
        parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": text}]
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": parts if self.sees_picture else text}]


@dataclass(frozen=True)
class RecordKind:
    """The questions to a language model for one kind of record."""

    name: str
    version: str  # of the prompt
    steps: tuple[Step, ...]

    @property
    def sha256(self) -> str:
        """Hash all that is asked: texts, draws and schemas."""
        contents = [
            [step.system, step.text, step.sees_picture, step.list_name, astuple(step.draw), step.each, step.form.schema]
            for step in self.steps
        ]
        return hashlib.sha256(json.dumps(contents).encode()).hexdigest()

    @property
    def sees_picture(self) -> bool:
        return any(step.sees_picture for step in self.steps)


async def ask_record(kind: RecordKind, edit: str, picture: str, ask: AskModel, settings: LLMSettings) -> RecordAnswer:
    """Make the payload of one query's record."""
    answers: dict[str, Any] = {}
    notes, details = list[str](), dict[str, Any](tries=0)
    for step in kind.steps:
        values = []
        for item in answers[step.each] if step.each else ("",):
            messages = step.messages(edit, answers, picture, item)
            valid, requests = await _ask_until_valid(kind, step, messages, answers, ask, settings)
            values += valid
            details["tries"] += requests
        if not step.list_name:
            answers |= values[0]
            continue
        texts = [value[step.list_name] for value in values]
        wanted = step.draw.count
        if not step.each:
            details |= {"temperature": step.draw.temperature, "drawn": wanted}
        if len(texts) < wanted:
            notes.append(f"{len(texts)} of {wanted} {step.list_name} were drawn: the first ones are repeated")
            details["filled"] = True
            texts = [texts[place % len(texts)] for place in range(wanted)]
        answers[step.list_name] = texts
    return RecordAnswer(answers, tuple(notes), details)


async def _ask_until_valid(
    kind: RecordKind,
    step: Step,
    question: list[Message],
    answers: Mapping[str, Any],
    ask: AskModel,
    settings: LLMSettings,
) -> tuple[list[dict[str, Any]], int]:
    """Return as many valid answers as the step draws, or fewer after too many invalid ones, and the requests it took.

    An invalid answer is sent back with the reason; earlier invalid ones are dropped.
    """
    values: list[dict[str, Any]] = []
    messages, problem, requests, failures = question, "", 0, 0
    while len(values) < step.draw.count and failures < settings.tries:
        before = len(values)
        missing = step.draw.count - before
        reply = await ask(messages, step.form, replace(step.draw, count=missing))
        requests += 1
        for text in reply.texts[:missing]:
            try:
                values.append(step.read(text, answers))
            except BadInput as error:
                cut_off = f"it was cut off after {settings.max_tokens} tokens; " if reply.cut_off else ""
                problem = without_secrets(f"{cut_off}{error}")
                sent_back = {"role": "assistant", "content": text[:_MAX_CHARACTERS_SENT_BACK] or "(no answer)"}
                messages = [*question, sent_back, {"role": "user", "content": _CORRECTION.format(problem=problem)}]
        failures += len(values) == before
    if not values:
        raise NoAnswer(f"{settings.model} gave no valid {kind.name} in {counted(failures, 'answer')}: {problem}")
    return values, requests


class Asker:
    """Makes records of one kind with one server. Remembers which request format the server understands."""

    def __init__(self, kind: RecordKind, settings: LLMSettings) -> None:
        require_httpx()
        if kind.sees_picture and not settings.send_image:
            what = f"records of {kind.name} need a model that sees pictures: leave TAPR_LLM_SEND_IMAGE out"
            raise BadInput(what, code="bad_setting")
        self.kind, self.settings = kind, settings
        self._dialect = Dialect()  # the last one that this server understood

    @property
    def maker(self) -> Maker:
        """Return all that decides an answer, beside the picture and the edit."""
        return Maker(f"openai:{self.settings.model}", self.kind.version, self.kind.sha256)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Ask]:
        """Answer many questions over one client, several at a time; cancelling one closes its request."""
        async with Chat(self.settings) as chat:

            async def ask(reference: Reference, edit: str) -> RecordAnswer:
                return await self._ask(chat.fresh(self._dialect), reference, edit)

            yield ask

    async def _ask(self, chat: Chat, reference: Reference, edit: str) -> RecordAnswer:
        if not edit.strip():
            raise BadInput("the edit is empty: say in words how the picture you want differs", code="empty_edit")
        settings, picture = self.settings, ""
        if self.kind.sees_picture:
            picture = await asyncio.to_thread(data_url, reference.image, settings.longest_side, settings.image_bytes)

        async def ask(messages: list[Message], form: AnswerForm, draw: Draw) -> Reply:
            reply = await chat.ask(messages, form, draw)
            self._dialect = reply.dialect
            return reply

        try:
            answer = await ask_record(self.kind, plain(edit), picture, ask, settings)
        except NoAnswer as failure:
            failure.details = self._details(chat)
            raise
        details = {**answer.details, **self._details(chat)}
        return RecordAnswer(answer.payload, (*chat.dialect.notes(), *answer.notes), details)

    def _details(self, chat: Chat) -> dict[str, Any]:
        used, settings = chat.usage, self.settings
        cost = used.cost(settings.price_in, settings.price_out)
        return {"answer_form": chat.dialect.form, "usage": used.as_dict(), "cost": cost}
