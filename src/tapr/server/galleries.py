"""Several galleries in one server: /api/galleries/NAME/... are the routes of the gallery of that name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.server.access import GALLERY, Right, gallery_named
from tapr.server.engine import Engine
from tapr.server.notifier import Notifier
from tapr.server.problems import problem
from tapr.server.schemas import Galleries, Listed, problem_replies
from tapr.server.writer import Writer
from tapr.store.quota import Quota

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, eq=False)
class ServedGallery:
    """A gallery with its engine and writer."""

    name: str
    engine: Engine
    writer: Writer | None  # None: read-only
    notifier: Notifier

    @property
    def quota(self) -> Quota | None:
        return self.writer.quota if self.writer else None

    def close(self) -> None:
        self.notifier.close()
        if self.writer is not None:
            self.writer.close()
        self.engine.close()


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"a gallery's name has up to 64 letters, digits, - and _, not {name!r}")
    return name


def name_of(gallery: Gallery) -> str:
    """The default name of a gallery: its folder's, if that is a valid name."""
    return gallery.path.name if _NAME.fullmatch(gallery.path.name) else "gallery"


def galleries_router(served: Mapping[str, ServedGallery]) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/galleries", responses=problem_replies(401, 422, 429, 503))
    async def galleries(request: Request) -> Galleries:
        """The galleries of this server that the asker may read."""
        rights: dict[str, Right] = request.scope["tapr.rights"]
        return Galleries(
            galleries=[_told(one, rights[name]) for name, one in served.items() if rights[name] >= Right.READ]
        )

    return router


def _told(one: ServedGallery, right: Right) -> Listed:
    gallery, quota = one.engine.gallery, one.quota or Quota()
    return Listed(
        name=one.name,
        count=len(gallery),
        snapshot=gallery.manifest.snapshot or 0,
        may_write=right == Right.WRITE and one.writer is not None,
        used_bytes=gallery.usage().bytes if one.writer else None,
        quota_pictures=quota.pictures,
        quota_bytes=quota.bytes,
    )


class GalleryRouter:
    """Removes /api/galleries/NAME from a path and passes the request to that gallery's application."""

    def __init__(self, app: ASGIApp, others: Mapping[str, ASGIApp], first: str) -> None:
        self._app, self._others, self._first = app, others, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = gallery_named(scope["path"]) if scope["type"] == "http" else None
        if name is None:
            if scope["type"] == "http" and scope["path"].startswith("/api/") and scope["path"] != "/api/galleries":
                scope[GALLERY] = self._first
            await self._app(scope, receive, send)
            return
        if name != self._first and name not in self._others:
            await problem(404, f"there is no gallery {name[:80]!r} here: /api/galleries lists them")(
                scope, receive, send
            )
            return
        scope[GALLERY] = name
        whole = scope["path"]
        rest = whole.removeprefix(f"/api/galleries/{name}")
        scope["path"] = f"/api{rest}" if rest.strip("/") else "/api/gallery"
        if scope["path"].startswith("/api/galleries"):
            await problem(404, f"there is nothing at {whole}")(scope, receive, send)
            return
        try:
            await self._others.get(name, self._app)(scope, receive, send)
        finally:
            scope["path"] = whole  # the log shows the original path


def described(paths: Mapping[str, Any]) -> dict[str, Any]:
    """The routes of named galleries for OpenAPI: the plain routes with the gallery's name as a parameter."""
    parameter = {"name": "gallery", "in": "path", "required": True, "schema": {"type": "string", "title": "Gallery"}}
    out: dict[str, Any] = {}
    for path, operations in paths.items():
        if path.startswith("/api/galleries"):
            continue
        out[f"/api/galleries/{{gallery}}{path.removeprefix('/api')}"] = {
            method: {
                **operation,
                "operationId": f"gallery_{operation['operationId']}",
                "parameters": [parameter, *operation.get("parameters", [])],
            }
            for method, operation in operations.items()
        }
    return out
