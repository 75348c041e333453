"""Errors as problem+json (RFC 9457): a status and the sentence that the command line would print."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tapr.errors import BadInput, Overloaded, TaprError
from tapr.images.decode import BadImage, PictureTooLarge
from tapr.server.concurrency import Busy
from tapr.server.engine import UnknownPicture
from tapr.server.references import UnknownReference
from tapr.store.lock import WriterBusy
from tapr.store.write_operations import KeyReused, UnknownId
from tapr.utils.safe_text import without_secrets

RETRY_SECONDS = 1
log = logging.getLogger("tapr.server")

TITLES = {
    400: "Bad request",
    401: "Token needed",
    403: "Refused",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    413: "Too large",
    415: "Not a picture",
    421: "Wrong host",
    422: "Not understood",
    429: "Busy",
    500: "Failed",
    503: "Not available",
}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    title = TITLES.get(status, "Error")
    body = {"type": "about:blank", "title": title, "status": status, "detail": without_secrets(detail)}
    headers = dict(headers or {})
    if status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_SECONDS))
    # a lone surrogate from a request must not break the answer that quotes it
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Response(content, status, headers, media_type="application/problem+json")


_STATUS: tuple[tuple[type[TaprError], int], ...] = (  # the first that fits
    (PictureTooLarge, 413),
    (BadImage, 415),
    (UnknownPicture, 404),
    (UnknownReference, 404),
    (UnknownId, 404),
    (KeyReused, 409),
    (WriterBusy, 503),
    (BadInput, 400),
    (Busy, 429),
    (Overloaded, 429),
)


def status_of(error: TaprError) -> int:
    """503: the gallery, the factorizer or the time: what the asker did not cause, and may pass."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503)


def without_places_of(gallery: Path) -> Callable[[str], str]:
    """Where the server keeps its files is nobody's business but the log's."""
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
        return problem(status, without_places(str(error)))

    @app.exception_handler(ClientDisconnect)
    async def _gone(request: Request, error: ClientDisconnect) -> Response:
        return problem(400, "the connection was closed before the request was whole")

    @app.exception_handler(RequestValidationError)
    async def _not_understood(request: Request, error: RequestValidationError) -> Response:
        return problem(422, _sentence(error.errors()))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        text = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        if text == "There was an error parsing the body":  # FastAPI's words for whatever json raises
            text = (
                "the body is no JSON that can be read: it is malformed, nested too deeply, or holds too long a number"
            )
        return problem(error.status_code, text, dict(error.headers or {}))


def _sentence(errors: Sequence[dict[str, Any]]) -> str:
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return f"{place}: {str(first['msg']).lower()}"
