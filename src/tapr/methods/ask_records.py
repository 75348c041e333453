"""Asks a language model for the records of the compared methods. Each kind has its own prompt and schema.

This is `tapr factorize --for KIND --batch QUERIES --out RECORDS`. Specs, TAPR's own records, are made by factorize/.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.factorize.batch import Answer, Ask, BatchReport, OnProgress, record_batch
from tapr.factorize.chat import Chat, require_httpx
from tapr.factorize.dialect import LIKELIEST, AnswerForm, Dialect, Draw
from tapr.factorize.failures import NoSpec
from tapr.factorize.picture import data_url, picture_only
from tapr.factorize.queries import BatchQuery
from tapr.factorize.records import SPEC, Maker
from tapr.factorize.settings import LLMSettings
from tapr.methods.prompt_text import VERSION, object_of, schema_of, with_rules_and_examples
from tapr.methods.record_kinds import schemas
from tapr.methods.records import FILE, Payload
from tapr.query.reference import Reference

# messages and the schema of an answer in, the drawn answers out
AskModel = Callable[[list[dict[str, Any]], Draw, Mapping[str, Any]], Awaitable[Sequence[str]]]

_HEAD = re.compile(
    r"^# (call|call without picture|call for each of \w+ without picture|draw \d+ \w+ at [\d.]+)$", re.MULTILINE
)
_CORRECTION = "That answer cannot be used: {problem}. Answer the same question again, with JSON only."


@dataclass(frozen=True)
class Call:
    """One call of a prompt. Later calls see the earlier answers; only some see the picture."""

    text: str
    sees_picture: bool
    draw: Draw = LIKELIEST  # of more than one: the answers, drawn by chance, become one list
    name: str = ""  # of that list; an answer's own key is the same word without its "s"
    each: str = ""  # the list that it goes through, one request for each text

    @classmethod
    def of(cls, head: str, text: str) -> Call:
        if head.startswith("call for each"):
            return cls(text, False, each=head.split()[4])
        if head.startswith("call"):
            return cls(text, head == "call")
        _, count, name, _, temperature = head.split()
        return cls(text, True, Draw(float(temperature), int(count)), name)

    def messages(self, edit: str, answers: dict[str, Any], picture: str) -> list[dict[str, Any]]:
        said = self.text.replace("{edit}", edit).replace("{answers}", json.dumps(answers, ensure_ascii=False))
        if not self.sees_picture:
            return [{"role": "user", "content": said}]
        parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": said}]
        return [{"role": "user", "content": parts}]


@dataclass(frozen=True)
class RecordPrompt:
    schema: type[Payload]
    version: str
    calls: tuple[Call, ...]

    @classmethod
    def load(cls, kind: str, file: Path | None = None) -> RecordPrompt:
        """The kind's own prompt, with the rules and examples that all have; or a file's, as it stands."""
        known = prompted_kinds()
        if kind not in known:
            raise BadInput(f"there is no prompt for {kind!r}: choose {', '.join((SPEC, *known))} or all")
        schema = known[kind]
        if file is None:
            bare = cls(schema, f"{kind}_v{VERSION}", _calls(schema.prompt))
            return replace(bare, calls=tuple(replace(call, text=bare._whole(call)) for call in bare.calls))
        try:
            made = cls(schema, f"{FILE}{file.name}", _calls(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read the prompt {str(file)!r}: {error}") from None
        lost = schema.model_fields.keys() - frozenset[str]().union(*map(made.fields, made.calls))
        if not made.calls or lost:
            what = f"names no {', '.join(sorted(lost))}" if made.calls else 'has no line such as "# call"'
            raise BadInput(f"the prompt {file} of {kind} records {what}: docs/factorizers.md says how one is written")
        return made

    @property
    def sha256(self) -> str:
        """Over what is really asked: rules, examples and schemas too."""
        asked = [[call.text, call.sees_picture, call.name, call.each, self.answer_schema(call)] for call in self.calls]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def answer_schema(self, call: Call) -> dict[str, Any]:
        if call.name:
            return object_of({call.name.removesuffix("s"): {"type": "string"}})
        return schema_of(self.schema, self.fields(call), texts=bool(call.each))

    def _whole(self, call: Call) -> str:
        return with_rules_and_examples(
            call.text,
            self.schema,
            self.fields(call),
            sees_picture=call.sees_picture,
            drawn=call.name,
            each=call.each,
        )

    @property
    def kind(self) -> str:
        return self.schema.kind

    def fields(self, call: Call) -> frozenset[str]:
        """The fields of the record that this call fills."""
        if call.name:
            return frozenset((call.name,))
        return frozenset(name for name in self.schema.model_fields if f'"{name}"' in call.text)


def _calls(prompt: str) -> tuple[Call, ...]:
    parts = _HEAD.split(prompt)[1:]
    return tuple(Call.of(head, text.strip()) for head, text in zip(parts[::2], parts[1::2], strict=True))


def prompted_kinds() -> dict[str, type[Payload]]:
    """Those that a language model is asked for; specs are asked for by factorize/."""
    return {kind: schema for kind, schema in schemas().items() if schema.prompt}


async def ask_record(prompt: RecordPrompt, edit: str, picture: str, ask: AskModel, tries: int) -> Answer:
    """Make the record of one query. An invalid answer is requested again, together with the reason."""
    answers: dict[str, Any] = {}
    notes: list[str] = []
    for call in prompt.calls:
        messages = call.messages(edit, answers, picture)
        if call.name:
            answers[call.name], note = await _drawn(prompt, call, messages, ask, tries)
        elif call.each:
            answers, note = await _each(prompt, call, edit, answers, ask, tries), ""
        else:
            answers, note = await _asked(prompt, call, messages, answers, ask, tries)
        notes += [note] if note else []
    drawn = [call.draw for call in prompt.calls if call.name]
    details = {"temperature": drawn[0].temperature, "drawn": drawn[0].count} if drawn else {}
    if notes:
        details["filled"] = True
    return Answer(answers, tuple(notes), details)


async def _asked(
    prompt: RecordPrompt, call: Call, messages: list[dict[str, Any]], answers: dict[str, Any], ask: AskModel, tries: int
) -> tuple[dict[str, Any], str]:
    """All answers so far including this one, and a note if it had to be repaired."""
    schema, wanted = prompt.schema, prompt.fields(call)
    first, problem, together = messages, "", answers
    for _ in range(tries):
        text = (await ask(messages, LIKELIEST, prompt.answer_schema(call)))[0]
        try:
            together = answers | {name: value for name, value in json_object(text).items() if name in wanted}
            schema.check(together, wanted)
        except BadInput as error:
            problem = str(error)
            messages = corrected(first, text, problem)
        else:
            return together, ""
    repaired = schema.repaired(together)
    if repaired is None:
        raise NoSpec(f"no valid {prompt.kind} record in {tries} tries: {problem}")
    return repaired


async def _each(
    prompt: RecordPrompt, call: Call, edit: str, answers: dict[str, Any], ask: AskModel, tries: int
) -> dict[str, Any]:
    """The answers so far, and a list with one text for each of a list that is there."""
    (name,) = prompt.fields(call)
    found: list[str] = []
    for text in answers[call.each]:
        one = replace(call, text=call.text.replace("{item}", text), name=name, each="")
        messages = one.messages(edit, answers, "")
        made, _ = await _drawn(prompt, replace(one, draw=LIKELIEST), messages, ask, tries, key=name)
        found += made
    return answers | {name: found}


async def _drawn(
    prompt: RecordPrompt, call: Call, messages: list[dict[str, Any]], ask: AskModel, tries: int, key: str = ""
) -> tuple[list[str], str]:
    """As many texts as the prompt wants; where fewer come, the first ones are repeated, and it is said."""
    key, wanted, failures, problem = key or call.name.removesuffix("s"), call.draw.count, 0, ""
    schema = object_of({key: {"type": "string"}})
    found: list[str] = []
    first = messages
    while len(found) < wanted and failures < tries:
        texts = await ask(messages, Draw(call.draw.temperature, wanted - len(found)), schema)
        used = 0
        for text in texts[: wanted - len(found)]:
            try:
                value = json_object(text).get(key)
                if not isinstance(value, str) or not value.strip():
                    raise BadInput(f"it has no text under {key!r}")
            except BadInput as error:
                problem = str(error)
                messages = corrected(first, text, problem)
            else:
                found.append(value.strip())
                used += 1
        failures += used == 0
    if not found:
        raise NoSpec(f"no valid {prompt.kind} record in {tries} tries: {problem}")
    if len(found) == wanted:
        return found, ""
    filled = [found[place % len(found)] for place in range(wanted)]
    return filled, f"{len(found)} of {wanted} {call.name} were drawn: the first ones are repeated"


class RecordAsker:
    """Makes records of one kind with one server. Remembers which request format the server understands."""

    def __init__(self, kind: str, settings: LLMSettings, file: Path | None = None) -> None:
        require_httpx()
        self.prompt, self.settings = RecordPrompt.load(kind, file), settings
        self._dialect = Dialect()

    @property
    def maker(self) -> Maker:
        return Maker(f"openai:{self.settings.model}", self.prompt.version, self.prompt.sha256)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Ask]:
        async with Chat(self.settings) as chat:

            async def ask(reference: Reference, edit: str) -> Answer:
                return await self._ask(chat.fresh(self._dialect), reference, edit)

            yield ask

    async def _ask(self, chat: Chat, reference: Reference, edit: str) -> Answer:
        settings = self.settings
        url = await asyncio.to_thread(data_url, reference.image, settings.longest_side, settings.image_bytes)

        async def ask(messages: list[dict[str, Any]], draw: Draw, schema: Mapping[str, Any]) -> Sequence[str]:
            reply = await chat.ask(messages, AnswerForm(self.prompt.kind.replace("-", "_"), schema), draw)
            self._dialect = reply.dialect
            return reply.texts

        try:
            answer = await ask_record(self.prompt, " ".join(edit.split()), url, ask, settings.tries)
        except NoSpec as failure:
            failure.usage = chat.usage
            raise
        return Answer(answer.payload, answer.notes, {**(answer.details or {}), "usage": chat.usage.as_dict()})


def make_records(
    kind: str,
    queries: Sequence[BatchQuery],
    settings: LLMSettings,
    out: Path,
    on_progress: OnProgress | None = None,
    prompt: Path | None = None,
) -> BatchReport:
    """Append a record per query to `out`; those that are there are kept, what failed before is tried again."""
    asker = RecordAsker(kind, settings, prompt)
    return record_batch(
        queries,
        kind,
        asker.session(),
        asker.maker,
        out,
        picture_only,
        concurrency=settings.concurrency,
        on_progress=on_progress,
    )


def corrected(first: list[dict[str, Any]], answer: str, problem: str) -> list[dict[str, Any]]:
    """The same question with the last invalid answer and the reason. Earlier invalid answers are dropped."""
    return [
        *first,
        {"role": "assistant", "content": answer[:2000] or "(no answer)"},
        {"role": "user", "content": _CORRECTION.replace("{problem}", problem)},
    ]


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in an answer, from the first brace to the last: models add text or code fences around it."""
    try:
        value = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        raise BadInput("the answer holds no JSON object") from None
    if not isinstance(value, dict):
        raise BadInput("the answer holds no JSON object")
    return value
