"""Middleware: counts, times and logs every request, and turns unexpected errors into responses."""

from __future__ import annotations

import time
import traceback

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapr.server.access import GALLERY
from tapr.server.logs import REQUEST_HEADER, begin_request
from tapr.server.metrics import Metrics
from tapr.server.problems import log, problem
from tapr.server.traces import span
from tapr.utils.safe_text import without_secrets


class RequestLog:
    """Logs method, path and status, but never the query string, which may hold a token.

    Every request has an id, the client's own or a new one. The response and all log lines about the request carry it.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0
        name = begin_request(Headers(scope=scope).get(REQUEST_HEADER))

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_HEADER] = name
            await send(message)

        try:
            with span(f"{scope['method']} request", **{"url.path": scope["path"], "tapr.request_id": name}):
                await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - begin
            route = getattr(scope.get("route"), "path", "other")
            gallery = scope.get(GALLERY, "")
            self._metrics.request(gallery, scope["method"], route, status, seconds)
            path = ascii(scope["path"])[1:-1]
            fields = {"method": scope["method"], "path": path, "route": route, "status": status}
            fields |= {"ms": round(1000 * seconds, 1), "client": (scope.get("client") or ("", 0))[0]}
            log.info("%s %s %d %.0f ms", scope["method"], path, status, 1000 * seconds, extra={"fields": fields})


class ErrorBoundary:
    """Logs an unexpected error with its traceback, and answers 500 without details."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            if started or scope["type"] != "http":
                raise
            log.error("%s failed: %s", ascii(scope["path"]), without_secrets(traceback.format_exc()))
            await problem(500, "something failed inside the server; its log tells what")(scope, receive, send)
