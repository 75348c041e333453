"""Errors as problem+json (RFC 9457): a status and the sentence that the command line would print."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tapr.errors import BadInput, BadOption, NewProcessNeeded, Overloaded, TaprError
from tapr.images.decode import BadImage, PictureTooLarge
from tapr.options import SearchOptions
from tapr.server import supervised
from tapr.server.concurrency import Busy
from tapr.server.pictures import UnknownPicture
from tapr.server.references import UnknownReference
from tapr.store.lock import WriterBusy
from tapr.store.quota import QuotaExceeded
from tapr.store.saved_searches import UnknownSearch
from tapr.store.write_operations import KeyReused, UnknownId
from tapr.utils.option_model import refusal
from tapr.utils.safe_text import without_secrets

RETRY_SECONDS = 1
log = logging.getLogger("tapr.server")

TITLES = {  # and the code of an answer that no error of ours stands behind
    400: ("Bad request", "bad_input"),
    401: ("Token needed", "unauthorized"),
    403: ("Refused", "forbidden"),
    404: ("Not found", "not_found"),
    405: ("Method not allowed", "method_not_allowed"),
    408: ("Too slow", "too_slow"),
    409: ("Conflict", "key_reused"),
    413: ("Too large", "too_large"),
    415: ("Not a picture", "not_a_picture"),
    421: ("Wrong host", "wrong_host"),
    422: ("Not understood", "bad_input"),
    429: ("Busy", "busy"),
    500: ("Failed", "failed"),
    503: ("Not available", "unavailable"),
}


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, error: TaprError | None = None
) -> Response:
    title, code = TITLES.get(status, ("Error", "failed"))
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": without_secrets(detail)}
    body["code"] = code if error is None else error.code
    if isinstance(error, BadOption) and error.option:
        body["option"] = error.option
    headers = dict(headers or {})
    if status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_SECONDS))
    # a lone surrogate in a request must not break the response that quotes it
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Response(content, status, headers, media_type="application/problem+json")


_STATUS: tuple[tuple[type[TaprError], int], ...] = (  # the first match counts
    (PictureTooLarge, 413),
    (BadImage, 415),
    (UnknownPicture, 404),
    (UnknownReference, 404),
    (UnknownId, 404),
    (UnknownSearch, 404),
    (KeyReused, 409),
    (QuotaExceeded, 413),
    (WriterBusy, 503),
    (BadInput, 400),
    (Busy, 429),
    (Overloaded, 429),
)


def status_of(error: TaprError) -> int:
    """The HTTP status of an error; 503 for problems that the client did not cause and that may pass."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503)


def without_places_of(gallery: Path) -> Callable[[str], str]:
    """Remove the gallery's folder from messages; only the log may show it."""
    places = {str(gallery): gallery.name, str(gallery.resolve()): gallery.name, str(Path.home()): "~"}

    def without_places(text: str) -> str:
        for place, name in places.items():
            text = text.replace(place, name) if len(place) > 1 else text
        return text

    return without_places


def install(app: FastAPI, gallery: Path) -> None:
    without_places = without_places_of(gallery)

    @app.exception_handler(TaprError)
    async def _tapr_error(request: Request, error: TaprError) -> Response:
        status = status_of(error)
        if status >= 500:
            log.error("%s %s: %s", request.method, request.url.path, without_secrets(str(error)))
        if isinstance(error, NewProcessNeeded):
            supervised.end()
        return problem(status, without_places(str(error)), error=error)

    @app.exception_handler(ClientDisconnect)
    async def _gone(request: Request, error: ClientDisconnect) -> Response:
        return problem(400, "the connection was closed before the request was whole")

    @app.exception_handler(RequestValidationError)
    async def _not_understood(request: Request, error: RequestValidationError) -> Response:
        refused = refusal(error.errors(), SearchOptions)
        return problem(422, str(refused), error=refused)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        text = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        if text == "There was an error parsing the body":  # FastAPI's message for any JSON error
            text = (
                "the body is no JSON that can be read: it is malformed, nested too deeply, or holds too long a number"
            )
        return problem(error.status_code, text, dict(error.headers or {}))
