"""Factorize with a language model behind any OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, hosted ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.answers import SCHEMA_SHA256, SPEC_FORM, read_answer
from tapr.factorize.chat import Chat, Reply, require_httpx
from tapr.factorize.dialect import Dialect
from tapr.factorize.event_loop import run_anywhere
from tapr.factorize.failures import NoSpec
from tapr.factorize.picture import data_url
from tapr.factorize.prompt import SpecPrompt, load_prompt
from tapr.factorize.records import Maker
from tapr.factorize.row import FactorizerRow, OnFailure, Setting
from tapr.factorize.settings import LLMSettings
from tapr.factorize.target_only import target_only
from tapr.factorize.usage import Usage
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.utils.safe_text import without_secrets

Ask = Callable[[Reference, str], Awaitable[Factorization]]


class OpenAIFactorizer:
    """Asks for JSON of a fixed schema, checks it as an EditSpec and feeds back what is wrong with it.

    With an encoder, Target is held to what its text tower reads; without one, to a careful count of words.
    """

    def __init__(
        self, settings: LLMSettings, *, encoder: Encoder | None = None, on_failure: OnFailure = "error"
    ) -> None:
        require_httpx()
        self.settings = settings
        self._unread = encoder.unread if encoder is not None else None
        self._on_failure = on_failure
        self._prompt = load_prompt()
        self._dialect = Dialect()  # the last one that this server understood

    @property
    def name(self) -> str:
        return f"openai:{self.settings.model}"

    @property
    def maker(self) -> Maker:
        """What decides an answer, beside the picture and the edit; its record is found by this."""
        version = self._prompt.version if self.settings.send_image else f"{self._prompt.version} without picture"
        return Maker(self.name, version, self._prompt.sha256, SCHEMA_SHA256)

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        async def once() -> Factorization:
            async with self.session() as ask:
                return await ask(reference, edit)

        return run_anywhere(once())

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Ask]:
        """Many questions over one client, as many at a time as the caller likes; cancelling one closes its request."""
        async with Chat(self.settings) as chat:

            async def ask(reference: Reference, edit: str) -> Factorization:
                return await self._ask(chat.fresh(self._dialect), reference, edit)

            yield ask

    async def _ask(self, chat: Chat, reference: Reference, edit: str) -> Factorization:
        if not edit.strip():
            raise BadInput("the edit is empty: say in words how the picture you want differs")
        picture = None
        if self.settings.send_image:
            size = self.settings.longest_side, self.settings.image_bytes
            picture = await asyncio.to_thread(data_url, reference.image, *size)
        try:
            return await self._until_valid(chat, self._prompt, " ".join(edit.split()), picture)
        except NoSpec as failure:
            if self._on_failure != "target-only":
                raise
            return target_only(edit, str(failure), self._details(chat.usage, chat.dialect, None))

    async def _until_valid(self, chat: Chat, prompt: SpecPrompt, edit: str, picture: str | None) -> Factorization:
        first = messages = prompt.messages(edit, picture)
        problem = ""
        for tries in range(1, self.settings.tries + 1):
            reply = await chat.ask(messages, SPEC_FORM)
            self._dialect = reply.dialect
            try:
                spec = read_answer(reply.text, self._unread)
            except BadInput as error:
                problem = self._problem(reply, error)
                messages = prompt.corrected(first, reply.text, problem)
            else:
                notes = reply.dialect.notes()
                if picture is None:
                    notes = (*notes, "the model did not see the picture: the spec comes from the edit alone")
                return Factorization(spec, self.name, notes, self._details(chat.usage, reply.dialect, tries))
        answers = "1 answer" if self.settings.tries == 1 else f"{self.settings.tries} answers"
        raise NoSpec(f"{self.settings.model} gave no valid spec in {answers}: {problem}", chat.usage)

    def _problem(self, reply: Reply, error: BadInput) -> str:
        cut_off = f"it was cut off after {self.settings.max_tokens} tokens; " if reply.cut_off else ""
        return without_secrets(f"{cut_off}{error}")

    def _details(self, usage: Usage, dialect: Dialect, tries: int | None) -> dict[str, Any]:
        maker = self.maker
        return {
            "model": self.settings.model,
            "prompt": maker.prompt,
            "prompt_sha256": maker.prompt_sha256,
            "schema_sha256": maker.schema_sha256,
            "answer_form": dialect.form,
            "tries": tries,
            "usage": usage.as_dict(),
            "cost": usage.cost(self.settings.price_in, self.settings.price_out),
        }


def _asking(setting: Setting) -> OpenAIFactorizer:
    settings = setting.settings or LLMSettings.load()
    return OpenAIFactorizer(settings, encoder=setting.encoder, on_failure=setting.on_failure)


ROWS = (
    FactorizerRow(
        "openai", "A vision language model behind an OpenAI-compatible server.", _asking, order=40, asks_server=True
    ),
)
