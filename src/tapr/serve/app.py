"""The application: the engine, the gates before it, the routes, the page, and the layers around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import PlainTextResponse, Response

import tapr
from tapr import alike
from tapr.factorize.base import Factorizer
from tapr.finding import Scale
from tapr.gallery import Gallery
from tapr.serve import openapi, problems
from tapr.serve.api import api_router
from tapr.serve.engine import Engine
from tapr.serve.export_api import export_router
from tapr.serve.facet_api import facet_router
from tapr.serve.gate import Gate
from tapr.serve.metrics import Metrics
from tapr.serve.observe import Failsafe, Observe
from tapr.serve.picture_api import picture_router
from tapr.serve.security import BodyLimit, Guard
from tapr.serve.settings import Settings

_PICTURE_THREADS, _PICTURE_QUEUE = 4, 512  # a page of thumbnails must not wait behind searches, nor they behind it
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def create_app(
    gallery: Gallery, settings: Settings | None = None, factorizer: str | Factorizer | None = None
) -> FastAPI:
    """Loads the encoder and the bank before it returns: an application that answers is ready."""
    settings = settings or Settings()
    metrics = Metrics()
    engine = Engine(gallery, factorizer, settings, metrics.sweep)
    Scale.of(engine.gallery)  # its phrases are encoded now, not while the first person waits
    alike.usual(engine.gallery)
    gate = Gate("ask", settings.threads, settings.queue, settings.seconds)
    picture_gate = Gate("picture", _PICTURE_THREADS, _PICTURE_QUEUE, settings.seconds)
    metrics.gauges |= {
        "tapr_requests_inside": ("Requests worked on or waiting.", lambda: gate.inside),
        "tapr_picture_requests_inside": ("The same for pictures.", lambda: picture_gate.inside),
        "tapr_references": ("Opened references kept.", lambda: len(engine.references)),
        "tapr_pictures": ("Pictures in the gallery.", lambda: len(engine.gallery)),
    }

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.ready = True
        yield
        app.state.ready = False
        gate.close()
        picture_gate.close()
        engine.close()

    app = FastAPI(
        title="tapr",
        summary="Composed image retrieval: a picture and a sentence in, a ranked gallery and its reasons out.",
        version=tapr.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.engine = engine
    problems.install(app, gallery.path)
    app.include_router(api_router(engine, gate))
    app.include_router(picture_router(engine, picture_gate))
    app.include_router(export_router(engine, gate, picture_gate))
    app.include_router(facet_router(engine, gate))
    _add_health(app, engine, metrics)
    _add_page(app)
    openapi.complete(app, settings.token is not None)
    for layer, options in (  # the last one added is the first one asked
        (BodyLimit, {"settings": settings}),
        (Failsafe, {}),
        (Guard, {"settings": settings}),
        (Observe, {"metrics": metrics}),
    ):
        app.add_middleware(layer, **options)
    return app


def _add_health(app: FastAPI, engine: Engine, metrics: Metrics) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        if not app.state.ready:
            return problems.problem(503, "the server is shutting down")
        len(engine.gallery)  # raises when the bank has gone
        return PlainTextResponse("ready\n")

    @app.get("/metrics", include_in_schema=False)
    async def metrics_text() -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    """The page's files are few: they are read once, so that no path from a request ever reaches the disk."""
    web = {item.name: item.read_bytes() for item in files("tapr.serve").joinpath("web").iterdir() if item.is_file()}

    def sent(name: str) -> Response:
        kind = _TYPES["." + name.rpartition(".")[2]]
        return Response(web[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return sent("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return sent("docs.html")

    @app.get("/web/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in web:
            return problems.problem(404, f"there is nothing at /web/{name}")
        return sent(name)
