"""Factorize with a language model behind any OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, hosted ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict

from tapr.encoders.base import Encoder
from tapr.factorize.asking import Asker, RecordKind
from tapr.factorize.event_loop import run_anywhere
from tapr.factorize.failures import NoAnswer
from tapr.factorize.records import Maker
from tapr.factorize.row import FactorizerRow, FactorizerSetting, OnFailure
from tapr.factorize.settings import LLMSettings
from tapr.factorize.spec_prompt import spec_kind
from tapr.factorize.target_only import target_only
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec

_BLIND = "the model did not see the picture: the spec comes from the edit alone"


class OpenAIFactorizer:
    """Asks for a spec. With an encoder, Target is held to what its text tower reads; else to a count of words."""

    def __init__(
        self, settings: LLMSettings, *, encoder: Encoder | None = None, on_failure: OnFailure = "error"
    ) -> None:
        unread = encoder.unread if encoder is not None else None
        self.settings = settings
        self._asker = Asker(spec_kind(sees_picture=settings.send_image, unread=unread), settings)
        self._on_failure = on_failure

    @property
    def name(self) -> str:
        return self.maker.model

    @property
    def kind(self) -> RecordKind:
        return self._asker.kind

    @property
    def maker(self) -> Maker:
        return self._asker.maker

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        async def once() -> Factorization:
            async with self.session() as ask:
                return await ask(reference, edit)

        return run_anywhere(once())

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Callable[[Reference, str], Awaitable[Factorization]]]:
        """Answer many questions over one client, several at a time; cancelling one closes its request."""
        async with self._asker.session() as ask_model:

            async def ask(reference: Reference, edit: str) -> Factorization:
                try:
                    answer = await ask_model(reference, edit)
                except NoAnswer as failure:
                    if self._on_failure != "target-only":
                        raise
                    return target_only(edit, str(failure), {**asdict(self.maker), **failure.details})
                notes = answer.notes if self.settings.send_image else (*answer.notes, _BLIND)
                spec = EditSpec.from_dict(answer.payload)
                return Factorization(spec, self.name, notes, {**asdict(self.maker), **answer.details})

            yield ask


def _load(setting: FactorizerSetting) -> OpenAIFactorizer:
    settings = setting.settings or LLMSettings.load()
    return OpenAIFactorizer(settings, encoder=setting.encoder, on_failure=setting.on_failure)


ROWS = (
    FactorizerRow(
        "openai", "A vision language model behind an OpenAI-compatible server.", _load, order=40, asks_server=True
    ),
)
