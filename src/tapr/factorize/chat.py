"""Asks one OpenAI-compatible server: repeats after passing failures, leaves out what the server refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from tapr.errors import BadInput
from tapr.factorize.dialect import LIKELIEST, Dialect, Draw
from tapr.factorize.failures import NoSpec, ServerRefused, ServerUnreachable
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import Usage
from tapr.utils.extras import install_hint
from tapr.utils.retry import RetryPolicy, retry_after_seconds
from tapr.utils.safe_text import without_secrets

if TYPE_CHECKING:
    import openai

_PICTURE = r"(image|picture|vision|multi-?modal)"
_PICTURE_REFUSED = re.compile(
    rf"mmproj|{_PICTURE}.*(not (be )?(support|enable|allow|accept)|unsupported|disabled)"
    rf"|(not|n't) (a|support|accept|take|have|see)\b.*{_PICTURE}|unsupported.*{_PICTURE}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reply:
    texts: tuple[str, ...]  # as many as were drawn, or as many as the server gave; at least one
    cut_off: bool  # the answer ran into max_tokens
    dialect: Dialect  # that the server understood

    @property
    def text(self) -> str:
        return self.texts[0]


@dataclass
class Chat:
    """An open client. `usage` counts what is asked through this object, so every query gets a `fresh` one."""

    settings: LLMSettings
    dialect: Dialect = field(default_factory=Dialect)
    usage: Usage = field(default_factory=Usage)
    _client: openai.AsyncOpenAI | None = field(default=None, repr=False)

    async def __aenter__(self) -> Self:
        import openai

        self._client = openai.AsyncOpenAI(
            base_url=self.settings.base_url,
            api_key=self.settings.api_key.get_secret_value() or "none",  # the client insists; local servers do not
            timeout=self.settings.timeout,
            max_retries=0,  # repeated here instead, where it is counted and explained
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def fresh(self, dialect: Dialect) -> Chat:
        """The same connections, with this dialect and a count of its own."""
        return replace(self, dialect=dialect, usage=Usage())

    async def ask(
        self, messages: list[dict[str, Any]], draw: Draw = LIKELIEST, form: tuple[str, Mapping[str, Any]] | None = None
    ) -> Reply:
        """An answer, or some drawn by chance, after as many repeats and simplifications as the settings allow.

        `form`: the answer's name and schema; None is a spec's.
        """
        failures = 0
        while True:
            try:
                return await self._ask_once(messages, draw, form)
            except _Refused as refusal:
                simpler = self.dialect.after_refusal(refusal.message)
                if simpler is None:
                    raise self._failure(f"refused the request ({refusal.message})") from None
                self.dialect = simpler
            except _Passing as trouble:
                failures += 1
                if failures > self.settings.retries:
                    kind = ServerUnreachable if trouble.unreachable else NoSpec
                    raise self._failure(f"{trouble} ({_times(failures)})", kind) from None
                await asyncio.sleep(self._pause(failures, trouble.retry_after))

    async def _ask_once(
        self, messages: list[dict[str, Any]], draw: Draw, form: tuple[str, Mapping[str, Any]] | None
    ) -> Reply:
        import openai

        assert self._client is not None, "a Chat is used inside `async with`"
        create: Any = self._client.chat.completions.create  # the messages are plain dictionaries here
        limit = self.settings.max_tokens
        arguments = (
            self.dialect.arguments(limit, draw)
            if form is None
            else self.dialect.arguments(limit, draw, form[1], form[0])
        )
        self.usage += Usage(calls=1)
        try:
            async with asyncio.timeout(self.settings.timeout):  # the whole request: a trickle of bytes counts as none
                completion = await create(model=self.settings.model, messages=messages, **arguments)
        except (TimeoutError, openai.APITimeoutError):
            raise _Passing(f"gave no answer within {self.settings.timeout:g} s") from None
        except openai.APIStatusError as error:
            raise self._status(error) from None
        except openai.APIConnectionError as error:
            # httpx or httpx2, by the client's version: only the name is the same
            unreachable = type(error.__cause__).__name__ == "ConnectError"
            what = "cannot be reached" if unreachable else "broke the connection off"
            raise _Passing(what, unreachable=unreachable) from None
        except (openai.APIError, ValueError):
            raise _Passing("sent something that is no chat completion") from None
        return self._reply(completion)

    def _reply(self, completion: Any) -> Reply:
        choices = getattr(completion, "choices", None)
        if not choices or any(getattr(choice, "message", None) is None for choice in choices):
            raise _Passing("sent something that is no chat completion")
        used = getattr(completion, "usage", None)
        if used is not None:
            self.usage += Usage(0, used.prompt_tokens or 0, used.completion_tokens or 0)
        # a server that repeats the key must not get it into a spec, a record or a page
        texts = tuple(without_secrets(_text(choice.message)) for choice in choices)
        return Reply(texts, choices[0].finish_reason == "length", self.dialect)

    def _status(self, error: openai.APIStatusError) -> Exception:
        """What an HTTP status means here: wrong settings, a refused part, a passing failure, or a final one."""
        status, message = error.status_code, self._message(error)
        what = f"answered {status} ({message})"
        advice = self._advice(status, message, error.code)
        if advice is not None:
            return ServerRefused(without_secrets(f"the server at {self.settings.place} {what}: {advice}"))
        if status in (400, 422):
            return _Refused(message)
        if status in (408, 409, 425, 429) or status >= 500:
            return _Passing(what, retry_after=retry_after_seconds(error.response.headers.get("retry-after")))
        return self._failure(what)

    def _advice(self, status: int, message: str, code: str | None) -> str | None:
        """What the user must change where repeating cannot help; None where it may help."""
        if self.settings.send_image and status in (400, 415, 422, 500, 501) and _PICTURE_REFUSED.search(message):
            return "name a model that sees pictures, or set TAPR_LLM_SEND_IMAGE=false"
        if status in (401, 403):
            return "set TAPR_LLM_API_KEY to a key it knows"
        if status == 404:
            return f"check TAPR_LLM_MODEL ({self.settings.model}) and the end of TAPR_LLM_BASE_URL (often /v1)"
        if code == "insufficient_quota":
            return "the account has nothing left to spend"
        return None

    def _pause(self, failures: int, retry_after: float | None) -> float:
        longest = self.settings.max_wait
        pause = RetryPolicy(first=self.settings.backoff, longest=longest).pause(failures, retry_after)
        if pause is None:
            raise self._failure(f"asks to wait {retry_after:.0f} s, longer than TAPR_LLM_MAX_WAIT ({longest:g} s)")
        return pause

    def _failure(self, what: str, kind: type[NoSpec] = NoSpec) -> NoSpec:
        return kind(without_secrets(f"the server at {self.settings.place} {what}"), self.usage)

    def _message(self, error: openai.APIStatusError) -> str:
        body = error.body
        while isinstance(body, Mapping):  # {"error": {"message": ...}}, {"message": ...}, {"detail": ...}
            body = body.get("message") or body.get("error") or body.get("detail")
        text = " ".join(str(body or error.response.reason_phrase).split())
        text = without_secrets(text)
        return text if len(text) <= 300 else text[:297] + "..."


class _Passing(Exception):
    """A failure that may not happen again: worth a repeat."""

    def __init__(self, what: str, *, retry_after: float | None = None, unreachable: bool = False) -> None:
        super().__init__(what)
        self.retry_after = retry_after
        self.unreachable = unreachable


class _Refused(Exception):
    """The server does not take the request as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def require_openai() -> None:
    try:
        import openai  # noqa: F401
    except ImportError:
        raise BadInput(f"the openai factorizer needs its client: {install_hint('llm')}") from None


def _text(message: Any) -> str:
    """Some servers put the whole answer where thoughts belong when thinking is switched off or parsed wrongly."""
    texts = (getattr(message, place, None) for place in ("content", "reasoning", "reasoning_content", "refusal"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _times(count: int) -> str:
    return "tried once" if count == 1 else f"tried {count} times"
