"""Builds the application: engines, concurrency limits, routes, page and middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, Literal

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

import tapr
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.gallery import Gallery
from tapr.search import near_duplicates
from tapr.server import openapi, problems
from tapr.server.access import Access, Right
from tapr.server.api import api_router
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.export_api import export_router
from tapr.server.facet_api import facet_router
from tapr.server.galleries import GalleryRouter, ServedGallery, checked_name, galleries_router, name_of
from tapr.server.logs import REQUEST_HEADER
from tapr.server.metrics import Metrics
from tapr.server.middleware import ErrorBoundary, RequestLog
from tapr.server.notifier import Notifier
from tapr.server.picture_api import picture_router
from tapr.server.saved_api import saved_router
from tapr.server.security import BodyLimit, Guard
from tapr.server.settings import Settings
from tapr.server.write_api import write_router
from tapr.server.writer import Writer
from tapr.store.layout import Manifest

_PICTURE_THREADS, _PICTURE_QUEUE = 4, 512  # own threads, so that thumbnails and searches do not wait for each other
_WRITE_THREADS = 8  # decode uploads; one thread per gallery writes them
_CORS = {  # for pages of the sites that --origin names; cookies never count for them
    "allow_methods": ("GET", "POST", "PUT", "DELETE"),
    "allow_headers": ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", REQUEST_HEADER),
    "expose_headers": ("ETag", "Retry-After", REQUEST_HEADER),
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def create_app(
    galleries: Gallery | Mapping[str, Gallery],
    settings: Settings | None = None,
    factorizer: str | Factorizer | None = None,
) -> FastAPI:
    """Create the application. Encoders and galleries are loaded before it returns, so an application that answers is
    ready.
    """
    settings = settings or Settings()
    named = {name_of(galleries): galleries} if isinstance(galleries, Gallery) else dict(galleries)
    access = settings.access(map(checked_name, named))
    if settings.quotas and not any(map(access.writes_at_all, named)):
        raise BadInput("a quota limits what is put, and nobody may put pictures here: see --write-token, or leave it")
    metrics = Metrics()
    pool = ConcurrencyLimit("ask", settings.threads, settings.queue, settings.seconds)
    picture_pool = ConcurrencyLimit("picture", _PICTURE_THREADS, _PICTURE_QUEUE, settings.seconds)
    write_pool = ConcurrencyLimit("write", _WRITE_THREADS, settings.queue, settings.seconds)
    pools = pool, picture_pool, write_pool
    served = {name: _served(name, one, settings, factorizer, metrics, access) for name, one in named.items()}
    first, *others = served.values()
    metrics.gauges |= {
        "tapr_requests_inside": ("Requests worked on or waiting.", lambda: pool.inside),
        "tapr_picture_requests_inside": ("The same for pictures.", lambda: picture_pool.inside),
        "tapr_write_requests_inside": ("The same for writes.", lambda: write_pool.inside),
    }
    metrics.gallery_gauges |= {
        "tapr_references": (
            "Opened references kept.",
            lambda: {name: len(one.engine.references) for name, one in served.items()},
        ),
        "tapr_pictures": (
            "Pictures in the galleries.",
            lambda: {name: len(one.engine.gallery) for name, one in served.items()},
        ),
        "tapr_used_bytes": (
            "Bytes of uploads, vectors and metadata of the galleries that can be written to.",
            lambda: {name: one.engine.gallery.usage().bytes for name, one in served.items() if one.writer},
        ),
        "tapr_quota_pictures": ("Pictures that a gallery may hold.", lambda: _quotas(served, "pictures")),
        "tapr_quota_bytes": ("Bytes that it may hold.", lambda: _quotas(served, "bytes")),
    }

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.ready = True
        yield
        app.state.ready = False
        for each in pools:
            each.close()
        for one in served.values():
            one.close()

    app = FastAPI(
        title="tapr",
        summary="Composed image retrieval: a picture and a sentence in, a ranked gallery and its reasons out.",
        version=tapr.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,  # one model per name: what client generators can tell apart
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.engine, app.state.notifier = first.engine, first.notifier
    _add_gallery(app, first, *pools)
    app.include_router(galleries_router(served))
    _add_health(app, served, pools, metrics)
    _add_page(app)
    openapi.complete(app, token_needed=not access.is_open(access.first))
    beside: dict[str, ASGIApp] = {}
    for one in others:
        other = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        _add_gallery(other, one, *pools)
        other.add_middleware(ErrorBoundary)
        beside[one.name] = other
    layers: tuple[tuple[Any, dict[str, Any]], ...] = (  # the last one added runs first
        (GalleryRouter, {"others": beside, "first": first.name}),
        (BodyLimit, {"settings": settings}),
        (ErrorBoundary, {}),
        (Guard, {"settings": settings, "access": access}),
        *(((CORSMiddleware, {**_CORS, "allow_origins": settings.origins}),) if settings.origins else ()),
        (RequestLog, {"metrics": metrics}),
    )
    for layer, options in layers:
        app.add_middleware(layer, **options)
    return app


def _served(
    name: str,
    gallery: Gallery,
    settings: Settings,
    factorizer: str | Factorizer | None,
    metrics: Metrics,
    access: Access,
) -> ServedGallery:
    writes = access.writes_at_all(name)
    if writes and type(gallery) is not Gallery:
        raise BadInput("a gallery that is searched on a cluster cannot be written to by a server: leave writing off")
    engine = Engine(gallery, factorizer, settings, partial(metrics.sweep, name))
    near_duplicates.usual(engine.gallery)
    writer = Writer(engine, partial(metrics.snapshot, name), settings.quota(name)) if writes else None
    return ServedGallery(name, engine, writer, Notifier(name, engine))


def _quotas(served: Mapping[str, ServedGallery], kind: Literal["pictures", "bytes"]) -> dict[str, float]:
    limits = {name: getattr(one.quota, kind) for name, one in served.items() if one.quota}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _add_gallery(
    app: FastAPI,
    served: ServedGallery,
    pool: ConcurrencyLimit,
    picture_pool: ConcurrencyLimit,
    write_pool: ConcurrencyLimit,
) -> None:
    engine = served.engine
    folder = engine.gallery.path
    problems.install(app, folder)
    app.include_router(api_router(engine, pool))
    app.include_router(write_router(engine, served.writer, write_pool, problems.without_places_of(folder)))
    app.include_router(picture_router(engine, picture_pool))
    app.include_router(export_router(engine, pool, picture_pool))
    app.include_router(facet_router(engine, pool))
    app.include_router(saved_router(engine, served.notifier, pool, served.writer.quota if served.writer else None))


def _add_health(
    app: FastAPI, served: Mapping[str, ServedGallery], pools: Sequence[ConcurrencyLimit], metrics: Metrics
) -> None:
    checks: list[asyncio.Task[Any]] = []  # the one that runs: whoever asks meanwhile waits for it too

    def read_manifests() -> None:
        for gallery in served.values():
            Manifest.read(gallery.engine.gallery.path)

    async def check() -> None:
        try:
            await asyncio.gather(*(pool.check(read_manifests) for pool in pools))
        finally:
            checks.clear()

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        if not app.state.ready:
            return problems.problem(503, "the server is shutting down")
        if not checks:
            checks.append(asyncio.create_task(check()))
        await asyncio.shield(checks[0])
        return PlainTextResponse("ready\n")

    @app.get("/metrics", include_in_schema=False)
    async def metrics_text(request: Request) -> Response:
        rights: dict[str, Right] = request.scope["tapr.rights"]
        readable = {name for name, right in rights.items() if right}
        return PlainTextResponse(metrics.text(readable), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    """Serve the page's files from memory, so that no request path ever reaches the disk."""
    known = {
        f"/{folder}/{item.name}": item.read_bytes()
        for folder in ("web", "docs")
        for item in files("tapr.server").joinpath(folder).iterdir()
        if item.is_file()
    }

    def sent(path: str) -> Response:
        kind = _TYPES.get("." + path.rpartition(".")[2])
        if path not in known or kind is None:
            return problems.problem(404, f"there is nothing at {path}")
        return Response(known[path], media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return sent("/web/index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return sent("/docs/docs.html")

    @app.get("/web/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        return sent(f"/web/{name}")

    @app.get("/docs/{name}", include_in_schema=False)
    async def docs_asset(name: str) -> Response:
        return sent(f"/docs/{name}")
