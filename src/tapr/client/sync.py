"""The client for programs that wait for their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from tapr.client.answers import BatchResult, Gallery, Listed, SavedSearch, WriteResult
from tapr.client.calls import OPTIONS, Call, Calls, PictureLike
from tapr.client.errors import Unreachable, error_of
from tapr.client.transport import REQUEST_ID, arguments, httpx_module
from tapr.query.spec import EditSpec
from tapr.result import ReferenceInfo, SearchResult
from tapr.utils.retry import RetryPolicy

T = TypeVar("T")


class Client:
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
        self._httpx = httpx_module()
        self._calls, self._retry_policy, self._sleep = Calls(gallery), retry or RetryPolicy(), sleep
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = self._httpx.Client(base_url=url, headers=headers, timeout=seconds, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # reading

    def galleries(self) -> list[Listed]:
        return self._ask(self._calls.galleries())

    def describe(self, *, limit: int = 0, offset: int = 0, where: str | None = None) -> Gallery:
        """What the gallery is; with `limit`, a page of its pictures."""
        return self._ask(self._calls.describe(limit, offset, where))

    def search(
        self,
        reference: PictureLike | None = None,
        edit: str | None = None,
        *,
        reference_id: str | None = None,
        reference_key: str | None = None,
        **options: Any,
    ) -> SearchResult:
        """A picture (bytes or a path), a gallery id or a key, and what should be different.

        With like=True by the picture alone. Further references are named by {"reference_id": ...} or
        {"reference_key": ...}, and may have a "crop". The options of a search:

        """
        return self._ask(self._calls.search(reference, edit, reference_id, reference_key, options))

    def open_reference(self, picture: PictureLike) -> ReferenceInfo:
        """Send a reference once; its `key` then names it."""
        return self._ask(self._calls.open_reference(picture))

    def rank(self, spec: EditSpec | Mapping[str, Any] | None, **options: Any) -> SearchResult:
        """By a spec, without a factorizer; beside the options of `search`: reference_id or reference_key."""
        return self._ask(self._calls.rank(spec, options))

    def image(self, id_: str, *, size: int | None = None) -> bytes:
        """A picture's bytes; with `size`, a thumbnail's."""
        return self._ask(self._calls.image(id_, size))

    def collage(
        self,
        reference: PictureLike | None = None,
        edit: str | None = None,
        *,
        reference_id: str | None = None,
        reference_key: str | None = None,
        format: str = "jpg",
        **options: Any,
    ) -> bytes:
        """A search as one picture to share, "jpg" or "png"; asked as by `search`."""
        return self._ask(self._calls.collage(reference, edit, reference_id, reference_key, format, options))

    def searches(self) -> list[SavedSearch]:
        """The saved searches of the gallery."""
        return self._ask(self._calls.searches())

    def run_search(self, name: str) -> SearchResult:
        """The answer to a saved search, of the gallery as it is now."""
        return self._ask(self._calls.run_search(name))

    def feed(self, name: str) -> bytes:
        """New pictures that fit a saved search, as an Atom feed."""
        return self._ask(self._calls.feed(name))

    # writing

    def save_search(self, name: str, *, webhook: str | None = None, **options: Any) -> SavedSearch:
        """Save a search: edit, text, like=True or spec; reference_id or reference_key; and the options of `search`."""
        return self._ask(self._calls.save_search(name, {"webhook": webhook, **options}))

    def delete_search(self, name: str) -> None:
        return self._ask(self._calls.delete_search(name))

    def put(
        self,
        id_: str,
        picture: PictureLike | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        path: str | None = None,
        key: str | None = None,
    ) -> WriteResult:
        """Add or replace a picture: its bytes or file, or where the server finds it. What is None stays as it is."""
        return self._ask(self._calls.put(id_, picture, metadata, url, path, key))

    def delete(self, id_: str, *, key: str | None = None) -> WriteResult:
        return self._ask(self._calls.delete(id_, key))

    def batch(self, lines: Iterable[Mapping[str, Any]], *, key: str | None = None) -> list[BatchResult]:
        """Many at once: {"id": ..., "picture": bytes, "metadata": {...}} or {"op": "delete", "id": ...}."""
        return self._ask(self._calls.batch(lines, key))

    def _ask(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = self._http.request(call.method, call.path, **arguments(call))
            except self._httpx.TransportError as error:
                wait = self._retry_policy.wait(attempt, None, None)
                if wait is None:
                    raise Unreachable(f"no answer from {self._http.base_url}: {error}") from None
            else:
                if reply.status_code < 400:
                    return call.read(reply.content)
                wait = self._retry_policy.wait(attempt, reply.status_code, reply.headers.get("Retry-After"))
                if wait is None:
                    raise error_of(reply.status_code, reply.content, reply.headers.get(REQUEST_ID, ""))
            self._sleep(wait)


Client.search.__doc__ = f"{Client.search.__doc__}{OPTIONS}\n"
