"""Asks one OpenAI-compatible server: repeats after passing failures, leaves out what the server refuses.

An answer is bounded by a number of bytes and a deadline, whatever the server sends.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from tapr.errors import BadInput
from tapr.factorize.dialect import LIKELIEST, AnswerForm, Dialect, Draw
from tapr.factorize.failures import NoAnswer, ServerRefused, ServerUnreachable
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import TokenUsage
from tapr.utils.extras import install_hint
from tapr.utils.json_text import parse_json
from tapr.utils.retry import RetryPolicy, retry_after_seconds
from tapr.utils.safe_text import without_secrets

if TYPE_CHECKING:
    import httpx

_PICTURE = r"(image|picture|vision|multi-?modal)"
_PICTURE_REFUSED = re.compile(
    rf"mmproj|{_PICTURE}.*(not (be )?(support|enable|allow|accept)|unsupported|disabled)"
    rf"|(not|n't) (a|support|accept|take|have|see)\b.*{_PICTURE}|unsupported.*{_PICTURE}",
    re.IGNORECASE,
)
_NO_COMPLETION = "sent something that is no chat completion"
_MAX_MESSAGE_CHARACTERS = 300  # of a server's own words in an error


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
    usage: TokenUsage = field(default_factory=TokenUsage)
    _client: httpx.AsyncClient | None = field(default=None, repr=False)

    async def __aenter__(self) -> Self:
        import httpx

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}  # no few bytes that become many
        key = self.settings.api_key.get_secret_value()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        limits = httpx.Limits(max_connections=self.settings.concurrency)
        self._client = httpx.AsyncClient(headers=headers, timeout=None, limits=limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    def fresh(self, dialect: Dialect) -> Chat:
        """Return a chat over the same connections, with this dialect and a count of its own."""
        return replace(self, dialect=dialect, usage=TokenUsage())

    async def ask(self, messages: list[dict[str, Any]], form: AnswerForm, draw: Draw = LIKELIEST) -> Reply:
        """Return the likeliest answer, or some drawn by chance, after the repeats that the settings allow."""
        failures = 0
        while True:
            try:
                return await self._ask_once(messages, form, draw)
            except _RequestRefused as refusal:
                simpler = self.dialect.after_refusal(refusal.message)
                if simpler is None:
                    raise self._failure(f"refused the request ({refusal.message})") from None
                self.dialect = simpler
            except _Passing as trouble:
                failures += 1
                if failures > self.settings.retries:
                    kind = ServerUnreachable if trouble.unreachable else NoAnswer
                    raise self._failure(f"{trouble} ({_times(failures)})", kind) from None
                await asyncio.sleep(self._pause(failures, trouble.retry_after))

    async def _ask_once(self, messages: list[dict[str, Any]], form: AnswerForm, draw: Draw) -> Reply:
        import httpx

        question = {"model": self.settings.model, "messages": messages}
        question |= self.dialect.fields(form, draw, self.settings.max_tokens)
        self.usage += TokenUsage(calls=1)
        try:
            async with asyncio.timeout(self.settings.timeout):  # the whole request: a trickle of bytes counts as none
                status, retry_after, body = await self._post(json.dumps(question))
        except TimeoutError:
            raise _Passing(f"gave no answer within {self.settings.timeout:g} s") from None
        except httpx.ConnectError:
            raise _Passing("cannot be reached", unreachable=True) from None
        except httpx.InvalidURL:
            raise ServerRefused(f"TAPR_LLM_BASE_URL ({self.settings.place}) is no address of a server") from None
        except httpx.HTTPError:
            raise _Passing("broke the connection off") from None
        if status != 200:
            raise self._status(status, retry_after, body)
        return self._reply(body)

    async def _post(self, question: str) -> tuple[int, str | None, bytes]:
        """Return status, Retry-After and body; a body over the limit is not read to its end."""
        assert self._client is not None, "a Chat is used inside `async with`"
        url = self.settings.base_url.rstrip("/") + "/chat/completions"
        body = bytearray()
        async with self._client.stream("POST", url, content=question) as response:
            async for part in response.aiter_raw():
                body += part
                if len(body) > self.settings.answer_bytes:
                    what = f"sent more than {self.settings.answer_bytes:,} bytes (TAPR_LLM_ANSWER_BYTES)"
                    raise self._failure(what, code="answer_too_long")
        return response.status_code, response.headers.get("retry-after"), bytes(body)

    def _reply(self, body: bytes) -> Reply:
        try:
            completion = parse_json(body)
            choices = completion["choices"]
            # a server that repeats the key must not get it into a spec, a record or a page
            texts = tuple(without_secrets(_text(choice["message"])) for choice in choices)
            cut_off = choices[0].get("finish_reason") == "length"
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise _Passing(_NO_COMPLETION) from None
        used = completion.get("usage")
        self.usage += TokenUsage(0, _count(used, "prompt_tokens"), _count(used, "completion_tokens"))
        return Reply(texts, cut_off, self.dialect)

    def _status(self, status: int, retry_after: str | None, body: bytes) -> Exception:
        """Say whether a status means wrong settings, a refused part, a passing failure, or a final one."""
        message, code = _message(body)
        what = f"answered {status} ({message})"
        advice = self._advice(status, message, code)
        if advice is not None:
            return ServerRefused(without_secrets(f"the server at {self.settings.place} {what}: {advice}"))
        if status in (400, 422):
            return _RequestRefused(message)
        if status in (408, 409, 425, 429) or status >= 500:
            return _Passing(what, retry_after=retry_after_seconds(retry_after))
        return self._failure(what)

    def _advice(self, status: int, message: str, code: object) -> str | None:
        """Return what the user must change where repeating cannot help; None where it may help."""
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

    def _failure(self, what: str, kind: type[NoAnswer] = NoAnswer, code: str | None = None) -> NoAnswer:
        return kind(without_secrets(f"the server at {self.settings.place} {what}"), code=code)


class _Passing(Exception):
    """A failure that may not happen again: worth a repeat."""

    def __init__(self, what: str, *, retry_after: float | None = None, unreachable: bool = False) -> None:
        super().__init__(what)
        self.retry_after = retry_after
        self.unreachable = unreachable


class _RequestRefused(Exception):
    """The server does not take the request as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def require_httpx() -> None:
    """Refuse to go on without the HTTP client of the extra `llm`."""
    try:
        import httpx  # noqa: F401
    except ImportError:
        what = f"asking a language model needs an HTTP client: {install_hint('llm')}"
        raise BadInput(what, code="missing_extra") from None


def _text(message: Mapping[str, Any]) -> str:
    """Return the answer; some servers put it where thoughts belong when thinking is off or parsed wrongly."""
    texts = (message.get(place) for place in ("content", "reasoning", "reasoning_content", "refusal"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _count(used: object, name: str) -> int:
    """Return a number of tokens; 0 where the server gives none that can be read."""
    count = used.get(name) if isinstance(used, Mapping) else None
    return count if type(count) is int and 0 < count < 1 << 53 else 0


def _message(body: bytes) -> tuple[str, object]:
    """Return the server's own words of an error, shortened, and its code."""
    text, code = body.decode(errors="replace"), None
    try:
        value = parse_json(body)
    except ValueError:
        value = None
    while isinstance(value, Mapping):  # {"error": {"message": ...}}, {"message": ...}, {"detail": ...}
        code = value.get("code", code)
        value = value.get("message") or value.get("error") or value.get("detail")
    text = without_secrets(" ".join((value if isinstance(value, str) else text).split())) or "it said nothing"
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else text[: _MAX_MESSAGE_CHARACTERS - 3] + "...", code


def _times(count: int) -> str:
    return "tried once" if count == 1 else f"tried {count} times"
