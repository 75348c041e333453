"""Routes that export pictures: as a CSV list, as a ZIP, or shown in the file manager of the server's machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import BoundedSemaphore
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Request
from PIL import Image
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tapr.errors import BadInput
from tapr.explain.collage import collage_bytes
from tapr.images.decode import BadImage
from tapr.result import Hit
from tapr.search.export import Picture, csv_of, zip_of
from tapr.server.concurrency import Busy, ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.picture_api import BINARY, BYTES, as_accepted
from tapr.server.pictures import ServedPictures, UnknownPicture
from tapr.server.questions import CollageForm, parsed, question
from tapr.server.schemas import problem_replies
from tapr.server.thumbnails import thumbnail
from tapr.utils.amounts import counted
from tapr.utils.desktop import show_in_folder

_AT_A_TIME = 4  # ZIP files being sent
COLLAGE_PIXELS = 2048  # of the longer side of a picture in a collage
_EXPORT_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {"application/zip": BINARY, "text/csv": BINARY}},
    **problem_replies(400, 404, 422, 429, 503),
}


_COLLAGE_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The collage.", "content": dict.fromkeys((BYTES, "image/jpeg", "image/png"), BINARY)},
    **problem_replies(400, 404, 413, 415, 422, 429, 503),
}


class ExportRequest(BaseModel, extra="forbid"):
    """Pictures of the gallery, in the order in which they are wanted."""

    ids: list[str] = Field(min_length=1, description="As a ranking names them.")
    format: Literal["csv", "zip"] = Field("zip", description="csv: a list; zip: the original files and the list.")
    keep_location: bool = Field(False, description="Leave in the files where a photograph was taken (GPS).")


class ShowRequest(BaseModel, extra="forbid"):
    id: str


def export_router(engine: Engine, pool: ConcurrencyLimit, picture_pool: ConcurrencyLimit) -> APIRouter:
    router = APIRouter(prefix="/api")
    sending = BoundedSemaphore(_AT_A_TIME)

    @router.post("/export", response_class=Response, responses=_EXPORT_REPLIES)
    async def export(request: ExportRequest) -> Response:
        """Download pictures of the gallery: their list as CSV, or the files in a ZIP. No paths of the server inside."""
        pictures = await pool.run(_pictures, engine, request)
        headers = {"Content-Disposition": f'attachment; filename="tapr-pictures.{request.format}"'}
        if request.format == "csv":
            return Response(csv_of(pictures), headers=headers, media_type="text/csv; charset=utf-8")
        if not sending.acquire(blocking=False):
            raise Busy(f"{_AT_A_TIME} ZIPs are being sent already: ask again in a moment")
        keep_location = request.keep_location and not engine.settings.strip_location
        return _Sent(zip_of(pictures, keep_location=keep_location), sending.release, headers)

    @router.post("/collage", response_class=Response, responses=_COLLAGE_REPLIES)
    async def collage(
        request: Request, form: Annotated[CollageForm, Form(media_type="multipart/form-data")]
    ) -> Response:
        """A search as one picture to share: the reference, the edit and up to 24 results. Asked as /api/search is."""

        def work() -> bytes:
            snapshot = engine.snapshot()
            options = question(parsed(form), form.reference, form.like, edit=form.edit, text=form.text)
            ranking, words = snapshot.search(options), form.words or options.edit or options.text
            return collage_bytes(ranking, words, form.format, partial(_loaded, snapshot.pictures))

        kind = "image/png" if form.format == "png" else "image/jpeg"
        headers = {"Content-Disposition": f'inline; filename="tapr-collage.{form.format}"'}
        return as_accepted(request, Response(await pool.run(work), headers=headers, media_type=kind))

    if engine.settings.show_in_folder:

        @router.post("/show", status_code=204, response_class=Response, responses=problem_replies(404, 422, 503))
        async def show(request: ShowRequest) -> Response:
            """Open the file manager of the server's machine where the picture lies, for the person in front of it."""
            await picture_pool.run(_show, engine, request.id)
            return Response(status_code=204)

    return router


class _Sent(StreamingResponse):
    """A ZIP response. `done` is called after it is sent, or after the client disconnects."""

    def __init__(self, pieces: Iterator[bytes], done: Callable[[], None], headers: dict[str, str]) -> None:
        super().__init__(pieces, headers=headers, media_type="application/zip")
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()


def _loaded(pictures: ServedPictures, hit: Hit) -> Image.Image | None:
    try:
        return thumbnail(pictures.bytes_of(pictures.entry(hit.id)), COLLAGE_PIXELS)
    except (UnknownPicture, BadImage):
        return None


def _pictures(engine: Engine, request: ExportRequest) -> list[Picture]:
    pictures, most = engine.snapshot().pictures, engine.settings.most_exported
    ids = list(dict.fromkeys(request.ids))
    if request.format == "zip" and len(ids) > most:
        raise BadInput(f"one ZIP takes up to {counted(most, 'picture')}, not {len(ids)}: ask for fewer, or for a CSV")
    entries = map(pictures.entry, ids)
    return [Picture.of(entry, width=entry.width, height=entry.height, caption=entry.caption) for entry in entries]


def _show(engine: Engine, id_: str) -> None:
    if not show_in_folder(engine.snapshot().pictures.entry(id_).path):
        raise BadInput("the server's machine has no desktop to show a folder on: use tapr show there")
