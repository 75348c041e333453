"""Send calls and read their answers, with httpx: waiting (Client) or with asyncio (AsyncClient).

A call is described once, in calls.py; both clients have a method for each, of the same signature.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from tapr.client.calls import Call, Calls
from tapr.client.errors import Unreachable, error_of
from tapr.errors import BadInput
from tapr.utils.extras import install_hint
from tapr.utils.retry import RetryPolicy

_REQUEST_ID = "X-Request-Id"
P = ParamSpec("P")
T = TypeVar("T")
Paused = TypeVar("Paused")
Send = TypeVar("Send")


class _Connected(Generic[Paused]):
    """A connection of httpx to one server."""

    def __init__(
        self,
        kind: str,
        url: str,
        token: str | None,
        gallery: str | None,
        seconds: float,
        retry: RetryPolicy | None,
        sleep: Callable[[float], Paused],
        options: dict[str, Any],
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise BadInput(f"the client needs httpx: {install_hint('client')}") from None
        self._calls, self._retry_policy, self._sleep = Calls(gallery), retry or RetryPolicy(), sleep
        self._failure = httpx.TransportError
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http: Any = getattr(httpx, kind)(base_url=url, headers=headers, timeout=seconds, **options)

    def _pause(self, attempt: int, reply: Any = None, error: Exception | None = None) -> float:
        """Return how long to wait before the next attempt, or raise what the server or the network refuses."""
        status, after = (None, None) if reply is None else (reply.status_code, reply.headers.get("Retry-After"))
        wait = self._retry_policy.wait(attempt, status, after)
        if wait is not None:
            return wait
        if reply is None:
            raise Unreachable(f"no answer from {self._http.base_url}: {error}") from None
        raise error_of(reply.status_code, reply.content, reply.headers.get(_REQUEST_ID, ""))


def _waiting(build: Callable[Concatenate[Calls, P], Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Make the method that sends such a call and waits for its answer."""

    @wraps(build)
    def send(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._send(build(client._calls, *args, **kwargs))

    return _with_signature(send, build)


def _awaited(
    build: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    """Make the method that sends such a call and is awaited."""

    @wraps(build)
    async def send(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._send(build(client._calls, *args, **kwargs))

    return _with_signature(send, build)


def _with_signature(send: Send, build: Callable[..., Call[Any]]) -> Send:
    """Show in the documentation what the answer is read as."""
    signature = inspect.signature(build)
    answer = signature.return_annotation.removeprefix("Call[").removesuffix("]")
    vars(send)["__signature__"] = signature.replace(return_annotation=answer)
    return send


class Client(_Connected[None]):
    """`gallery` names one of several; without it, the server's first. Safe to use from many threads."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8765",
        *,
        token: str | None = None,
        gallery: str | None = None,
        seconds: float = 60.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        """`options` go to httpx.Client, such as `verify` or `proxy`."""
        super().__init__("Client", url, token, gallery, seconds, retry, sleep, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _send(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = self._http.request(call.method, call.path, **call.arguments())
            except self._failure as error:
                wait = self._pause(attempt, error=error)
            else:
                if reply.status_code < 400:
                    return call.read(reply.content)
                wait = self._pause(attempt, reply)
            self._sleep(wait)

    galleries = _waiting(Calls.galleries)
    describe = _waiting(Calls.describe)
    search = _waiting(Calls.search)
    open_reference = _waiting(Calls.open_reference)
    rank = _waiting(Calls.rank)
    image = _waiting(Calls.image)
    collage = _waiting(Calls.collage)
    searches = _waiting(Calls.searches)
    run_search = _waiting(Calls.run_search)
    feed = _waiting(Calls.feed)
    save_search = _waiting(Calls.save_search)
    delete_search = _waiting(Calls.delete_search)
    put = _waiting(Calls.put)
    delete = _waiting(Calls.delete)
    batch = _waiting(Calls.batch)


class AsyncClient(_Connected[Awaitable[None]]):
    """The client for asyncio: the same methods, awaited."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8765",
        *,
        token: str | None = None,
        gallery: str | None = None,
        seconds: float = 60.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Any,
    ) -> None:
        """`options` go to httpx.AsyncClient, such as `verify` or `proxy`."""
        super().__init__("AsyncClient", url, token, gallery, seconds, retry, sleep, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = await self._http.request(call.method, call.path, **call.arguments())
            except self._failure as error:
                wait = self._pause(attempt, error=error)
            else:
                if reply.status_code < 400:
                    return call.read(reply.content)
                wait = self._pause(attempt, reply)
            await self._sleep(wait)

    galleries = _awaited(Calls.galleries)
    describe = _awaited(Calls.describe)
    search = _awaited(Calls.search)
    open_reference = _awaited(Calls.open_reference)
    rank = _awaited(Calls.rank)
    image = _awaited(Calls.image)
    collage = _awaited(Calls.collage)
    searches = _awaited(Calls.searches)
    run_search = _awaited(Calls.run_search)
    feed = _awaited(Calls.feed)
    save_search = _awaited(Calls.save_search)
    delete_search = _awaited(Calls.delete_search)
    put = _awaited(Calls.put)
    delete = _awaited(Calls.delete)
    batch = _awaited(Calls.batch)
