"""Routes that write: add, replace or delete pictures, one by one or in batches. security.py checks the rights first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tapr.errors import BadInput, TaprError, Unavailable
from tapr.images.decode import PictureTooLarge
from tapr.index.apply_writes import Outcome
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.fetching import Fetcher
from tapr.server.incoming import Incoming, incoming_line, incoming_put
from tapr.server.problems import status_of
from tapr.server.schemas import problem_replies
from tapr.server.writer import Writer
from tapr.store.write_operations import Mistyped, Operation, WriteResult
from tapr.utils.safe_text import without_secrets

_BATCH_LINES, _BATCH_BYTES = 64, 32 * 2**20  # lines and bytes of a batch that are processed together
_LINES, _BYTES = "application/jsonl", "application/octet-stream"
_BINARY = {"type": "string", "format": "binary"}
_REPLIES = problem_replies(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503)
PUT_FORM: dict[str, Any] = {
    "title": "PutForm",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "picture": {**_BINARY, "title": "Picture", "description": "The picture's bytes. Or give url or path."},
        "url": {"title": "Url", "type": "string"},
        "path": {"title": "Path", "type": "string"},
        "metadata": {"title": "Metadata", "type": "string", "description": "A JSON object as text."},
    },
}
_PUT_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {"schema": {"$ref": "#/components/schemas/PutForm"}},
        "application/json": {"schema": {"$ref": "#/components/schemas/PutRequest"}},
        _BYTES: {"schema": _BINARY},
    },
}
# generators do not know JSON lines; the server accepts them with any content type
_TEXT = {**_BINARY, "description": "A JSON object per line."}
_BATCH_BODY = {"required": True, "content": {_BYTES: {"schema": _TEXT}}}
_Key = Annotated[str | None, Header(alias="Idempotency-Key", description="The same again under one key is done once.")]
_Metadata = Annotated[str | None, Query(description="For a body that is the picture itself: a JSON object as text.")]

_Mistyped = Annotated[
    Mistyped,
    Query(description="A value that is not of its column's type: refuse the write, or keep the picture without it."),
]


class WriteResultModel(BaseModel):
    """What was done, and the first snapshot that has it."""

    id: str
    done: Literal["created", "replaced", "unchanged", "deleted"]
    snapshot: int
    width: int | None = None
    height: int | None = None
    sha256: str | None = Field(None, description="Of the picture's bytes.")
    caption: str | None = None


class BatchResult(BaseModel):
    """One line of the answer to a batch."""

    line: int
    status: int
    id: str | None
    done: Literal["created", "replaced", "unchanged", "deleted"] | None = None
    snapshot: int | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    caption: str | None = None
    detail: str | None = Field(None, description="What was wrong with the line.")


def write_router(
    engine: Engine, writer: Writer | None, pool: ConcurrencyLimit, fetcher: Fetcher, told: Callable[[str], str]
) -> APIRouter:
    """`told` removes internal details from an error message. Without a writer every request is refused."""
    router = APIRouter(prefix="/api")

    def written(operations: list[Operation]) -> list[Outcome]:
        if writer is None:
            raise Unavailable("this gallery is not written to by this server")
        return writer.apply_operations(operations)

    def apply_operations(incoming: Incoming) -> Response:
        # a repeated request is answered without fetching again
        outcome = engine.gallery.earlier_result(incoming.key, incoming.request)
        if outcome is None:
            (outcome,) = written([incoming.order(engine, fetcher)])
        if isinstance(outcome, BadInput):
            raise outcome
        return Response(outcome.to_json(), _status(outcome), media_type="application/json")

    def fulfil_lines(lot: list[tuple[int, bytes]], key: str | None, mistyped: Mistyped) -> list[str]:
        """Apply some lines of a batch. An invalid line does not stop the others."""
        outcomes: dict[int, Outcome | TaprError] = {}
        ids: dict[int, str] = {}
        operations: dict[int, Operation] = {}
        for number, line in lot:
            try:
                incoming = incoming_line(line, f"{key}:{number}" if key else None, mistyped)
                ids[number] = incoming.id
                known = engine.gallery.earlier_result(incoming.key, incoming.request)
                if known is not None:
                    outcomes[number] = known
                else:
                    operations[number] = incoming.order(engine, fetcher)
            except TaprError as error:
                outcomes[number] = error
        try:
            outcomes |= zip(operations, written(list(operations.values())) if operations else [], strict=True)
        except TaprError as error:  # such as: an index run holds the lock
            outcomes |= dict.fromkeys(operations, error)
        return [_line(number, ids.get(number), outcomes[number], told) for number, _ in lot]

    put_options: dict[str, Any] = {
        "response_model": WriteResultModel,
        "responses": {
            201: {"model": WriteResultModel, "description": "A picture that was not there before."},
            **_REPLIES,
        },
        "openapi_extra": {"requestBody": _PUT_BODY},
    }

    @router.put("/images", **put_options)
    async def put_image_by_query(
        request: Request, id: str, key: _Key = None, metadata: _Metadata = None, mistyped: _Mistyped = "refuse"
    ) -> Response:
        """The same as PUT /api/images/{id}, for ids that no path can hold."""
        return await pool.run(apply_operations, await incoming_put(request, id, key, mistyped))

    @router.put("/images/{id:any}", **put_options)
    async def put_image(
        request: Request, id: str, key: _Key = None, metadata: _Metadata = None, mistyped: _Mistyped = "refuse"
    ) -> Response:
        """Add or replace a picture: sent as a form or as it is, or named by `url` or `path` in JSON."""
        return await pool.run(apply_operations, await incoming_put(request, id, key, mistyped))

    @router.delete("/images", response_model=WriteResultModel, responses=_REPLIES)
    async def delete_image_by_query(id: str, key: _Key = None) -> Response:
        """The same as DELETE /api/images/{id}, for ids that no path can hold."""
        return await pool.run(apply_operations, Incoming("delete", id, key=key))

    @router.delete("/images/{id:any}", response_model=WriteResultModel, responses=_REPLIES)
    async def delete_image(id: str, key: _Key = None) -> Response:
        """Take a picture out of the gallery."""
        return await pool.run(apply_operations, Incoming("delete", id, key=key))

    @router.post(
        "/images:batch",
        response_class=Response,
        responses={
            200: {"description": "A line per line.", "content": {kind: {"schema": _TEXT} for kind in (_BYTES, _LINES)}},
            **_REPLIES,
        },
        openapi_extra={"requestBody": _BATCH_BODY},
    )
    async def batch(request: Request, key: _Key = None, mistyped: _Mistyped = "refuse") -> Response:
        """Many puts and deletes as JSON lines (BatchLine); the answer has a line (BatchResult) for each, in order."""
        results: list[str] = []
        async for lot in _batches(request.stream(), 2 * engine.settings.limits.bytes):
            results += await pool.run(fulfil_lines, lot, key, mistyped)
        kind = _BYTES if request.headers.get("accept") == _BYTES else _LINES  # for clients that only accept bytes
        return Response("".join(results), media_type=kind)

    return router


async def _batches(stream: AsyncIterator[bytes], longest: int) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Numbered lines in batches, so that they are processed while others still arrive."""
    begun, lot, size, number = b"", [], 0, 0
    async for chunk in stream:
        *whole, begun = (begun + chunk).split(b"\n")
        if len(begun) > longest:
            raise PictureTooLarge(f"line {number + len(whole) + 1} of the batch is longer than {longest:,} bytes")
        for line in whole:
            number += 1
            if line.strip():
                lot.append((number, line))
                size += len(line)
            if len(lot) >= _BATCH_LINES or size >= _BATCH_BYTES:
                yield lot
                lot, size = [], 0
    if begun.strip():
        lot.append((number + 1, begun))
    if lot:
        yield lot


def _status(done: WriteResult) -> int:
    return 201 if done.done == "created" else 200


def _line(number: int, id_: str | None, outcome: Outcome | TaprError, told: Callable[[str], str]) -> str:
    if isinstance(outcome, TaprError):
        said: dict[str, Any] = {"id": id_, "status": status_of(outcome), "detail": without_secrets(told(str(outcome)))}
    else:
        said = {"status": _status(outcome), **asdict(outcome)}
    # ensure_ascii, because an id may contain a lone surrogate
    return json.dumps({"line": number, **said}, ensure_ascii=True) + "\n"
