"""Routes that write: add, replace or delete pictures, one by one or in batches. security.py checks the rights first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from tapr.errors import BadInput, TaprError, Unavailable
from tapr.images.decode import PictureTooLarge
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.incoming import Incoming, batch_lines, incoming_line, incoming_put
from tapr.server.problems import status_of
from tapr.server.schemas import problem_replies
from tapr.server.writer import Writer
from tapr.store.write_operations import Mistyped, Operation, Outcome, WriteResult
from tapr.utils.safe_text import without_secrets

MAX_ANSWER_BYTES_IN_MEMORY = 2**20  # of a batch; a longer answer goes to a temporary file
_CHUNK_BYTES = 64 * 2**10
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


@dataclass(frozen=True)
class _Writes:
    """The writes that one gallery takes. Without a writer every request is refused."""

    engine: Engine
    writer: Writer | None
    without_places: Callable[[str], str]  # removes internal details from an error message

    def _written(self, operations: list[Operation]) -> list[Outcome]:
        if self.writer is None:
            raise Unavailable("this gallery is not written to by this server")
        return self.writer.apply_operations(operations)

    def apply(self, incoming: Incoming) -> Response:
        # a repeated request is answered without fetching again
        outcome = self.engine.gallery.earlier_result(incoming.key, incoming.request)
        if outcome is None:
            (outcome,) = self._written([incoming.operation(self.engine, self.engine.fetcher)])
        if isinstance(outcome, BadInput):
            raise outcome
        return Response(outcome.to_json(), _status(outcome), media_type="application/json")

    def apply_lines(
        self, lines: list[tuple[int, bytes | None]], key: str | None, mistyped: Mistyped, answer: IO[bytes]
    ) -> None:
        """Apply some lines of a batch and write their results. An invalid line does not stop the others."""
        outcomes: dict[int, Outcome | TaprError] = {}
        ids: dict[int, str] = {}
        operations: dict[int, Operation] = {}
        for number, line in lines:
            try:
                if line is None:
                    what = f"a batch has up to {self.engine.settings.batch_lines:,} lines"
                    raise PictureTooLarge(f"{what}: send this one and all that follow again, in another")
                incoming = incoming_line(line, f"{key}:{number}" if key else None, mistyped)
                ids[number] = incoming.id
                known = self.engine.gallery.earlier_result(incoming.key, incoming.request)
                if known is not None:
                    outcomes[number] = known
                else:
                    operations[number] = incoming.operation(self.engine, self.engine.fetcher)
            except TaprError as error:
                outcomes[number] = error
        try:
            outcomes |= zip(operations, self._written(list(operations.values())) if operations else [], strict=True)
        except TaprError as error:  # such as: an index run holds the lock
            outcomes |= dict.fromkeys(operations, error)
        answer.writelines(_line(number, ids.get(number), outcomes[number], self.without_places) for number, _ in lines)


def write_router(
    engine: Engine, writer: Writer | None, pool: ConcurrencyLimit, without_places: Callable[[str], str]
) -> APIRouter:
    """Return the routes. `without_places` removes internal details from an error message."""
    router, writes = APIRouter(prefix="/api"), _Writes(engine, writer, without_places)
    put_options: dict[str, Any] = {
        "response_model": WriteResult,
        "responses": {
            201: {"model": WriteResult, "description": "A picture that was not there before."},
            **_REPLIES,
        },
        "openapi_extra": {"requestBody": _PUT_BODY},
    }

    @router.put("/images", **put_options)
    async def put_image_by_query(
        request: Request, id: str, key: _Key = None, metadata: _Metadata = None, mistyped: _Mistyped = "refuse"
    ) -> Response:
        """The same as PUT /api/images/{id}, for ids that no path can hold."""
        return await pool.run(writes.apply, await incoming_put(request, id, key, mistyped))

    @router.put("/images/{id:any}", **put_options)
    async def put_image(
        request: Request, id: str, key: _Key = None, metadata: _Metadata = None, mistyped: _Mistyped = "refuse"
    ) -> Response:
        """Add or replace a picture: sent as a form or as it is, or named by `url` or `path` in JSON."""
        return await pool.run(writes.apply, await incoming_put(request, id, key, mistyped))

    @router.delete("/images", response_model=WriteResult, responses=_REPLIES)
    async def delete_image_by_query(id: str, key: _Key = None) -> Response:
        """The same as DELETE /api/images/{id}, for ids that no path can hold."""
        return await pool.run(writes.apply, Incoming("delete", id, key=key))

    @router.delete("/images/{id:any}", response_model=WriteResult, responses=_REPLIES)
    async def delete_image(id: str, key: _Key = None) -> Response:
        """Take a picture out of the gallery."""
        return await pool.run(writes.apply, Incoming("delete", id, key=key))

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
        """Do many puts and deletes, as JSON lines (BatchLine); the answer has a line (BatchResult) for each, in order.

        A batch has up to 50,000 lines. The first one beyond has status 413 and is the last of the answer.
        """
        # no client reads before it has sent everything: the answer waits, in memory while it is short
        answer: IO[bytes] = SpooledTemporaryFile(MAX_ANSWER_BYTES_IN_MEMORY)  # noqa: SIM115  closed when it is sent
        try:
            async for lines in batch_lines(request.stream(), engine.settings.batch_lines, engine.settings.limits):
                await pool.run(writes.apply_lines, lines, key, mistyped, answer)
        except BaseException:
            answer.close()
            raise
        kind = _BYTES if request.headers.get("accept") == _BYTES else _LINES  # for clients that only accept bytes
        return StreamingResponse(_chunks(answer), media_type=kind)

    return router


def _status(done: WriteResult) -> int:
    return 201 if done.done == "created" else 200


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Read a file from its start, and close it."""
    with file:
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _line(number: int, id_: str | None, outcome: Outcome | TaprError, without_places: Callable[[str], str]) -> bytes:
    if isinstance(outcome, TaprError):
        detail = without_secrets(without_places(str(outcome)))
        result: dict[str, Any] = {"id": id_, "status": status_of(outcome), "detail": detail}
    else:
        result = {"status": _status(outcome), **asdict(outcome)}
    # ensure_ascii, because an id may contain a lone surrogate
    return json.dumps({"line": number, **result}, ensure_ascii=True).encode() + b"\n"
