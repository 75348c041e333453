"""Reads a request to add or replace a picture: a form, JSON, or the picture itself."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from tapr.errors import BadInput
from tapr.images.decode import Limits, PictureTooLarge, sha256_of
from tapr.server.engine import Engine
from tapr.server.fetching import Fetcher
from tapr.store.write_operations import Content, Delete, Mistyped, Operation, Put, request_hash

KEY_CHARACTERS = 200
_LINES_TOGETHER, _BYTES_TOGETHER = 64, 16 * 2**20  # of a batch, processed together


class PutRequest(BaseModel):
    """The picture, or where it is; with neither, the picture stays and the metadata is replaced."""

    model_config = ConfigDict(extra="forbid")

    picture: str | None = Field(None, description="The picture's bytes in base64.")
    url: str | None = Field(None, description="Of a host that the server may fetch from (--fetch).")
    path: str | None = Field(None, description="Such as s3://bucket/key, below a folder that the server may read.")
    metadata: dict[str, Any] | None = Field(None, description="Replaces all of it; null: it stays as it is.")


class BatchLine(PutRequest):
    """One line of a batch."""

    op: str = Field("put", description="put or delete.")
    id: str


@dataclass(frozen=True)
class Incoming:
    """One requested write operation, before anything is fetched or decoded."""

    op: str
    id: str
    data: bytes | None = None
    url: str | None = None
    path: str | None = None
    metadata: dict[str, Any] | None = None
    key: str | None = None
    mistyped: Mistyped = "refuse"

    def __post_init__(self) -> None:
        if self.op not in ("put", "delete"):
            raise BadInput(f"op must be put or delete, not {self.op[:40]!r}")
        named = sum(value is not None for value in (self.data, self.url, self.path))
        if named > 1:
            raise BadInput("name the picture once: send it, or give its url, or its path")
        if self.op == "delete" and (named or self.metadata is not None):
            raise BadInput("to delete a picture, give its id and nothing else")
        if self.op == "put" and not named and self.metadata is None:
            raise BadInput("there is nothing to put: send a picture, its url or path, or metadata")
        if self.key is not None and not (0 < len(self.key) <= KEY_CHARACTERS and self.key.isprintable()):
            raise BadInput(f"an Idempotency-Key has 1 to {KEY_CHARACTERS} printable characters")

    @property
    def request(self) -> str:
        """A hash of the request; equal requests have equal hashes, whatever their form."""
        data = None if self.data is None else sha256_of(self.data)
        more = () if self.mistyped == "refuse" else (self.mistyped,)
        return request_hash(self.op, self.id, data, self.url, self.path, self.metadata, *more)

    def operation(self, engine: Engine, fetcher: Fetcher) -> Operation:
        """Fetch and decode the picture, before any lock is taken."""
        if self.op == "delete":
            return Delete(self.id, self.key, self.request)
        data = self.data
        if self.url is not None:
            data = fetcher.fetch(self.url)
        elif self.path is not None:
            data = fetcher.read(self.path)
        content = None if data is None else Content.of(data, engine.encoder, engine.settings.limits)
        return Put(self.id, content, self.metadata, self.key, self.request, self.mistyped)


async def incoming_put(request: Request, id_: str, key: str | None, mistyped: Mistyped) -> Incoming:
    return replace(await _incoming_put(request, id_, key), mistyped=mistyped)


async def _incoming_put(request: Request, id_: str, key: str | None) -> Incoming:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        async with request.form(max_files=1, max_fields=8) as form:
            unknown = set(form) - {"picture", "url", "path", "metadata"}
            if unknown:
                raise BadInput(
                    f"the form has a field {sorted(unknown)[0][:40]!r}: picture, url, path, metadata are known"
                )
            picture = form.get("picture")
            if picture is not None and not isinstance(picture, UploadFile):
                raise BadInput("picture must be a file")
            data = None if picture is None else await picture.read()
            text = {name: _text(form.get(name), name) for name in ("url", "path", "metadata")}
        return Incoming("put", id_, data, text["url"], text["path"], _metadata(text["metadata"]), key)
    body = await request.body()
    if kind == "application/json":
        try:
            asked = PutRequest.model_validate_json(body)
        except ValidationError as error:
            raise BadInput(_said(error)) from None
        return Incoming("put", id_, _decoded(asked.picture), asked.url, asked.path, asked.metadata, key)
    if kind == "application/octet-stream" or kind.startswith("image/"):
        return Incoming("put", id_, body, metadata=_metadata(request.query_params.get("metadata")), key=key)
    raise BadInput("send the picture as multipart/form-data, as image/..., or in application/json")


def incoming_line(line: bytes, key: str | None, mistyped: Mistyped) -> Incoming:
    try:
        asked = BatchLine.model_validate_json(line)
    except ValidationError as error:
        raise BadInput(_said(error)) from None
    return Incoming(asked.op, asked.id, _decoded(asked.picture), asked.url, asked.path, asked.metadata, key, mistyped)


async def batch_lines(
    stream: AsyncIterator[bytes], most: int, limits: Limits
) -> AsyncIterator[list[tuple[int, bytes | None]]]:
    """Yield the numbered lines of a batch, a few together, so that they are processed while others still arrive.

    After `most` lines comes None for one line too many. The rest of the stream is read and dropped, because a client
    that still sends reads no answer.
    """
    begun, lines, size, number, left = b"", list[tuple[int, bytes | None]](), 0, 0, most
    async for chunk in stream:
        if left < 0:
            continue
        *whole, begun = (begun + chunk).split(b"\n")
        if len(begun) > 2 * limits.bytes:
            where = f"line {number + len(whole) + 1} of the batch"
            raise PictureTooLarge(f"{where} is longer than {2 * limits.bytes:,} bytes")
        for line in whole:
            number += 1
            if line.strip() and left >= 0:
                lines.append((number, line if left else None))
                size += len(line)
                left -= 1
            if len(lines) >= _LINES_TOGETHER or size >= _BYTES_TOGETHER:
                yield lines
                lines, size = [], 0
    if begun.strip() and left >= 0:
        lines.append((number + 1, begun if left else None))
    if lines:
        yield lines


def max_batch_bytes_held(limits: Limits) -> int:
    """Return how many bytes of a batch are in memory at a time, at most."""
    return 2 * limits.bytes + _BYTES_TOGETHER


def _decoded(picture: str | None) -> bytes | None:
    try:
        return None if picture is None else base64.b64decode(picture, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("picture is not base64") from None


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be a text, not a file")
    return value


def _metadata(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput("metadata is not JSON") from None
    if not isinstance(value, dict):
        raise BadInput('metadata must be a JSON object, such as {"price": 40}')
    return value


def _said(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the body"
    return f"{place[:80]}: {str(first['msg']).lower()[:200]}"
