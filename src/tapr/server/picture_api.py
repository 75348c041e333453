"""Routes that return pictures. Only files in the catalogue are read, and only pictures are sent."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from PIL import Image
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from tapr.images.decode import BadImage, small
from tapr.images.location import without_location
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.heat import heat_picture
from tapr.server.pictures import UnknownPicture
from tapr.server.questions import HeatmapQuery
from tapr.server.schemas import problem_replies
from tapr.server.thumbnails import Picture as PictureFile
from tapr.server.thumbnails import Thumbnails, encoded, whole
from tapr.store.catalog import Entry


class _AnyText(Convertor[str]):
    """Starlette's `path` convertor stops at a line break, which a file name may contain."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _AnyText())

CACHING = "private, max-age=600"
_NO_ACTIVE_CONTENT = {"Content-Security-Policy": "default-src 'none'; sandbox"}
_Size = Annotated[int | None, Query(ge=16, le=2048, description="Pixels of the longer side; without it, the whole.")]
BINARY = {"schema": {"type": "string", "format": "binary"}}
BYTES = "application/octet-stream"  # for clients that accept nothing else, such as generated ones
_PICTURES = dict.fromkeys((BYTES, "image/jpeg", "image/png", "image/gif", "image/webp"), BINARY)
_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The picture.", "content": _PICTURES},
    304: {"description": "The picture that you have is still right."},
    **problem_replies(404, 422, 429, 503),
}
_HEAT_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The heat map.", "content": dict.fromkeys((BYTES, "image/png"), BINARY)},
    **problem_replies(400, 404, 422, 429, 503),
}


def picture_router(engine: Engine, pool: ConcurrencyLimit) -> APIRouter:
    router = APIRouter(prefix="/api")
    thumbnails = Thumbnails()

    def reply(id_: str, size: int | None, known: str | None) -> Response:
        pictures = engine.snapshot().pictures
        entry = pictures.entry(id_)
        version = _version(entry)
        etag = f'"{version}-{size or ("bare" if engine.settings.strip_location else "whole")}"'
        headers = {"ETag": etag, "Cache-Control": CACHING, **_NO_ACTIVE_CONTENT}
        if known is not None and etag in (part.strip().removeprefix("W/") for part in known.split(",")):
            return Response(status_code=304, headers=headers)
        try:
            picture = thumbnails.find(version, size) if size else None
            if picture is None:
                data = pictures.bytes_of(entry)
                if engine.settings.strip_location:
                    data = without_location(data)
                picture = thumbnails.make(version, size, data) if size else whole(data)
        except BadImage as error:
            raise UnknownPicture(f"the file of {id_!r} {error}") from None
        return _picture(picture, headers)

    @router.get("/images", response_class=Response, responses=_REPLIES)
    async def image_by_query(request: Request, id: str, size: _Size = None) -> Response:
        """The same as /api/images/{id}, for ids that no path can hold, such as `..`"""
        return as_accepted(request, await pool.run(reply, id, size, request.headers.get("if-none-match")))

    @router.get("/images/{id:any}", response_class=Response, responses=_REPLIES)
    async def image(request: Request, id: str, size: _Size = None) -> Response:
        """A picture of the gallery by its percent-encoded id; with `size`, a thumbnail."""
        return as_accepted(request, await pool.run(reply, id, size, request.headers.get("if-none-match")))

    @router.get("/references/{key}", response_class=Response, responses=_REPLIES)
    async def reference_image(request: Request, key: str, size: _Size = None) -> Response:
        """An opened reference, as the server keeps it."""

        def work() -> Response:
            image = engine.references.get(key).image
            return _picture(encoded(small(image, size) if size else image), {"Cache-Control": CACHING})

        return as_accepted(request, await pool.run(work))

    @router.get("/heatmap", response_class=Response, responses=_HEAT_REPLIES)
    async def heatmap(request: Request, asked: Annotated[HeatmapQuery, Query()]) -> Response:
        """Show where in a picture a term of a question finds its evidence, as PNG."""

        def work() -> Response:
            snapshot = engine.snapshot()
            heat = heat_picture(
                snapshot.compile(asked.options()), snapshot.pictures, picture_id=asked.id, number=asked.number,
                term=asked.term, size=asked.size, overlay=asked.overlay,
            )  # fmt: skip
            return _picture(_png(heat), {"Cache-Control": CACHING})

        return as_accepted(request, await pool.run(work))

    return router


def as_accepted(request: Request, response: Response) -> Response:
    if request.headers.get("accept") == BYTES and response.status_code == 200:
        response.headers["content-type"] = BYTES
    return response


def _version(entry: Entry) -> str:
    """A version that changes with the file, even before an index run has seen it."""
    try:
        return f"{entry.sha256[:16]}-{Path(entry.path).stat().st_mtime_ns:x}"
    except OSError:
        return entry.sha256[:16]


def _picture(picture: PictureFile, headers: dict[str, str]) -> Response:
    return Response(picture.data, headers={**_NO_ACTIVE_CONTENT, **headers}, media_type=picture.media_type)


def _png(image: Image.Image) -> PictureFile:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return PictureFile(buffer.getvalue(), "image/png")
