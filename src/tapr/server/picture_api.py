"""Routes that return pictures. Only files in the catalogue are read, and only pictures are sent."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from PIL import Image
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from tapr.images.decode import BadImage
from tapr.query.factors import Factor
from tapr.query.scoring import DEFAULT_SCORING, ReferenceFeatures
from tapr.query.spec import EditSpec, Weights
from tapr.search.rank import MAX_REFERENCES
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine, UnknownPicture
from tapr.server.heat import COMBINED, heat_picture
from tapr.server.named import CROP, named_reference, with_others
from tapr.server.schemas import problem_replies
from tapr.server.thumbnails import Picture, Thumbnails, encoded, small, whole
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
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BYTES = "application/octet-stream"  # for clients that accept nothing else, such as generated ones
_PICTURES = dict.fromkeys((_BYTES, "image/jpeg", "image/png", "image/gif", "image/webp"), _BINARY)
_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The picture.", "content": _PICTURES},
    304: {"description": "The picture that you have is still right."},
    **problem_replies(404, 422, 429, 503),
}
_HEAT_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The heat map.", "content": dict.fromkeys((_BYTES, "image/png"), _BINARY)},
    **problem_replies(400, 404, 422, 429, 503),
}


def picture_router(engine: Engine, gate: ConcurrencyLimit) -> APIRouter:
    router = APIRouter(prefix="/api")
    thumbnails = Thumbnails()

    def reply(id_: str, size: int | None, known: str | None) -> Response:
        entry = engine.entry(id_)
        version = _version(entry)
        etag = f'"{version}-{size or "whole"}"'
        headers = {"ETag": etag, "Cache-Control": CACHING, **_NO_ACTIVE_CONTENT}
        if known is not None and etag in (part.strip().removeprefix("W/") for part in known.split(",")):
            return Response(status_code=304, headers=headers)
        try:
            picture = thumbnails.find(version, size) if size else None
            if picture is None:
                data = engine.picture_bytes(entry)
                picture = thumbnails.make(version, size, data) if size else whole(data)
        except BadImage as error:
            raise UnknownPicture(f"the file of {id_!r} {error}") from None
        return _picture(picture, headers)

    @router.get("/images", response_class=Response, responses=_REPLIES)
    async def image_by_query(request: Request, id: str, size: _Size = None) -> Response:
        """The same as /api/images/{id}, for ids that no path can hold, such as `..`"""
        return _as_accepted(request, await gate.run(reply, id, size, request.headers.get("if-none-match")))

    @router.get("/images/{id:any}", response_class=Response, responses=_REPLIES)
    async def image(request: Request, id: str, size: _Size = None) -> Response:
        """A picture of the gallery by its percent-encoded id; with `size`, a thumbnail."""
        return _as_accepted(request, await gate.run(reply, id, size, request.headers.get("if-none-match")))

    @router.get("/references/{key}", response_class=Response, responses=_REPLIES)
    async def reference_image(request: Request, key: str, size: _Size = None) -> Response:
        """An opened reference, as the server keeps it."""

        def work() -> Response:
            image = engine.references.get(key).image
            return _picture(encoded(small(image, size) if size else image), {"Cache-Control": CACHING})

        return _as_accepted(request, await gate.run(work))

    @router.get("/heatmap", response_class=Response, responses=_HEAT_REPLIES)
    async def heatmap(
        request: Request,
        spec: Annotated[str, Query(description="The spec as JSON text.")],
        id: Annotated[str | None, Query(description="A gallery picture; without it, the reference itself.")] = None,
        reference_id: Annotated[str | None, Query(description="The reference, by gallery id.")] = None,
        reference_key: Annotated[str | None, Query(description="The reference, by the key of a reply.")] = None,
        atom: Annotated[str, Query(description="An atom, or empty for all together.")] = COMBINED,
        factor: Annotated[
            Factor | None, Query(description="Whose atom it is; continuity: the parts of the reference, no atom.")
        ] = None,
        weights: Annotated[str | None, Query(description="T,A,P,R such as 1,0.5,0.5,0.3")] = None,
        reference_weight: Annotated[
            float | None,
            Query(description="The `reference_weight` that the ranking reported; without it, as the paper weighs."),
        ] = None,
        reference_features: Annotated[
            ReferenceFeatures, Query(description="What of the reference stays: local, global, both.")
        ] = DEFAULT_SCORING.reference_features,
        size: Annotated[int, Query(ge=16, le=1024, description="Pixels of the longer side.")] = 256,
        overlay: Annotated[bool, Query(description="The map alone, see-through.")] = False,
        crop: Annotated[str | None, Query(description=CROP)] = None,
        more_references: Annotated[str | None, Query(description="Further references, as JSON text.")] = None,
        number: Annotated[int, Query(ge=1, le=MAX_REFERENCES, description="Which of several references to show.")] = 1,
    ) -> Response:
        """Where in a picture an atom finds its evidence, as PNG."""

        def work() -> Response:
            theta = Weights.parse(weights) if weights else None
            parsed = EditSpec.from_json(spec)
            pictures = []
            if reference_id is not None or reference_key is not None or id is None:
                first = named_reference(engine, None, reference_id, reference_key)
                pictures = with_others(engine, first, crop, more_references)
            query = engine.compile(pictures, parsed, theta, reference_weight, reference_features)
            heat = heat_picture(
                engine, pictures, query,
                number=number, picture_id=id, atom=atom, factor=factor, size=size, overlay=overlay,
            )  # fmt: skip
            return _picture(_png(heat), {"Cache-Control": CACHING})

        return _as_accepted(request, await gate.run(work))

    return router


def _as_accepted(request: Request, response: Response) -> Response:
    if request.headers.get("accept") == _BYTES and response.status_code == 200:
        response.headers["content-type"] = _BYTES
    return response


def _version(entry: Entry) -> str:
    """A version that changes with the file, even before an index run has seen it."""
    try:
        return f"{entry.sha256[:16]}-{Path(entry.path).stat().st_mtime_ns:x}"
    except OSError:
        return entry.sha256[:16]


def _picture(picture: Picture, headers: dict[str, str]) -> Response:
    return Response(picture.data, headers={**_NO_ACTIVE_CONTENT, **headers}, media_type=picture.media_type)


def _png(image: Image.Image) -> Picture:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return Picture(buffer.getvalue(), "image/png")
