"""Records of the compared systems from a language model: each kind's own prompt, its answers checked by its schema.

`tapr factorize --for KIND --batch QUERIES --out RECORDS` is this. Specs (TAPR's own records) are made by factorize/.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.factorize.batch import BatchQuery, newest_answer
from tapr.factorize.chat import Chat, require_openai
from tapr.factorize.dialect import FORMATS, Dialect
from tapr.factorize.event_loop import run_anywhere
from tapr.factorize.failures import NoSpec, ServerUnreachable
from tapr.factorize.picture import data_url, picture_only
from tapr.factorize.records import FAILURE, SPEC, Maker, Record, RecordFile, RecordIndex
from tapr.factorize.settings import LLMSettings
from tapr.methods.kinds import schemas
from tapr.methods.records import Payload

AskModel = Callable[[list[dict[str, Any]]], Awaitable[str]]  # messages in, the answer's text out


@dataclass(frozen=True)
class RecordPrompt:
    """One or more calls; a later one sees the answers before it, and the picture only if it says so."""

    schema: type[Payload]
    sha256: str
    calls: tuple[tuple[str, bool], ...]  # text, whether the picture goes with it

    @classmethod
    def load(cls, kind: str) -> RecordPrompt:
        known = {name: schema for name, schema in schemas().items() if schema.prompt}
        if kind not in known:
            raise BadInput(f"there is no prompt for {kind!r}: choose {', '.join((SPEC, *known))}")
        prompt = known[kind].prompt
        parts = re.split(r"^# (call|call without picture)$", prompt, flags=re.MULTILINE)[1:]
        calls = tuple((text.strip(), head == "call") for head, text in zip(parts[::2], parts[1::2], strict=True))
        return cls(known[kind], hashlib.sha256(prompt.encode()).hexdigest(), calls)

    @property
    def kind(self) -> str:
        return self.schema.kind


async def ask_record(prompt: RecordPrompt, edit: str, picture: str, ask: AskModel, tries: int) -> dict[str, Any]:
    """The payload of one query, every call repeated until its answer is a JSON object, the whole checked at the end."""
    problem = ""
    for _ in range(tries):
        answers: dict[str, Any] = {}
        try:
            for text, sees_picture in prompt.calls:
                answers |= _object(await ask(_messages(text, edit, answers, picture if sees_picture else None)))
            prompt.schema.read(answers, "asked")
        except BadInput as error:
            problem = str(error)
        else:
            return answers
    raise NoSpec(f"no valid {prompt.kind} record in {tries} tries: {problem}")


def make_records(kind: str, queries: Sequence[BatchQuery], settings: LLMSettings, out: Path) -> tuple[int, int]:
    """Append a record a query to `out`; those that are there are kept. -> how many were made, how many failed."""
    require_openai()
    prompt = RecordPrompt.load(kind)
    maker = Maker(f"openai:{settings.model}", kind, prompt.sha256)
    file = RecordFile(out)
    index, _ = file.index(kind)
    waiting = [query for query in queries if not _is_answered(index, query)]
    counts = [0, 0]

    async def run() -> None:
        gate = asyncio.Semaphore(settings.concurrency)
        with file.writer() as records:
            async with Chat(settings) as chat:

                async def ask(messages: list[dict[str, Any]]) -> str:
                    return (await chat.fresh(Dialect(form=FORMATS[-1])).ask(messages)).text

                async def one(query: BatchQuery) -> None:
                    async with gate:
                        sha256 = ""
                        try:
                            reference = await asyncio.to_thread(picture_only, query.reference)
                            sha256 = reference.sha256
                            url = await asyncio.to_thread(
                                data_url, reference.image, settings.longest_side, settings.image_bytes
                            )
                            payload = await ask_record(prompt, query.edit, url, ask, settings.tries)
                        except ServerUnreachable:
                            raise  # the next query would fare no better
                        except (NoSpec, BadInput) as failure:
                            counts[1] += 1
                            error = {"error": str(failure), "kind": kind}
                            records.write(Record(error, FAILURE, query.id, sha256, query.edit, maker))
                        else:
                            counts[0] += 1
                            records.write(Record(payload, kind, query.id, sha256, query.edit, maker))

                async with asyncio.TaskGroup() as group:
                    for query in waiting:
                        group.create_task(one(query))

    try:
        run_anywhere(run())
    except ExceptionGroup as stopped:  # the others were cancelled; the first one says why
        raise stopped.exceptions[0] from None
    return counts[0], counts[1]


def _is_answered(index: RecordIndex, query: BatchQuery) -> bool:
    try:
        return newest_answer(index, query) is not None
    except BadInput:  # its picture cannot be read, which is said when it is its turn
        return False


def _messages(text: str, edit: str, answers: dict[str, Any], picture: str | None) -> list[dict[str, Any]]:
    said = text.replace("{edit}", edit).replace("{answers}", json.dumps(answers, ensure_ascii=False))
    if picture is None:
        return [{"role": "user", "content": said}]
    parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": said}]
    return [{"role": "user", "content": parts}]


def _object(text: str) -> dict[str, Any]:
    """The JSON object of an answer, from its first brace to its last: models explain around it or fence it."""
    try:
        value = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        raise BadInput("the answer holds no JSON object") from None
    if not isinstance(value, dict):
        raise BadInput("the answer holds no JSON object")
    return value
