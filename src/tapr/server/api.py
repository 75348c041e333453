"""The routes that ask and answer. Each reads its request and hands the work to a thread behind the pool."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from pydantic_core import to_json
from starlette.responses import Response

import tapr
from tapr.options import SearchOptions
from tapr.query.factors import FACTORS
from tapr.query.spec import DEFAULT_WEIGHTS
from tapr.result import ReferenceInfo, SearchResult, json_ready, title_of
from tapr.search import near_duplicates
from tapr.search.plan import has_first_stage
from tapr.server import schemas
from tapr.server.bodies import described, json_body, parsed_json
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.pictures import Picture
from tapr.server.questions import (
    WAYS,
    FactorizeForm,
    FactorizeRequest,
    RankRequest,
    SearchForm,
    SearchRequest,
    SentReference,
    parsed,
    question,
)
from tapr.server.schemas import FactorizationModel, FactorModel, problem_replies

_FORM = "multipart/form-data"
PAGE = 200  # pictures of one /api/gallery reply
_ASKED = problem_replies(400, 404, 413, 415, 422, 429, 503)


def api_router(engine: Engine, pool: ConcurrencyLimit) -> APIRouter:
    router = APIRouter(prefix="/api")

    def answered(asked: SearchOptions) -> dict[str, Any]:
        return engine.marked(engine.snapshot().search(asked)).to_dict(paths=False)

    @router.post("/search", response_model=SearchResult, responses=_ASKED, openapi_extra=described(SearchRequest))
    async def search(request: Request, form: Annotated[SearchForm, Form(media_type=_FORM)]) -> Response:
        """Rank the gallery for "like this picture, but ...": an edit is factorized, a spec is not.

        Or by words alone, with text; or by a picture alone, with like.
        """
        body = await json_body(request)

        def work() -> dict[str, Any]:
            if body is None:
                return answered(question(parsed(form), form.reference, form.like, edit=form.edit, text=form.text))
            asked = parsed_json(body, SearchRequest)
            return answered(question(asked, like=asked.like))

        return _json(await pool.run(work))

    @router.post(
        "/factorize", response_model=FactorizationModel, responses=_ASKED, openapi_extra=described(FactorizeRequest)
    )
    async def factorize(request: Request, form: Annotated[FactorizeForm, Form(media_type=_FORM)]) -> Response:
        """Turn a picture and an edit into Target, Add, Preserve and Remove; of a chosen part, its own words."""
        body = await json_body(request)

        def work() -> FactorizationModel:
            asked = form if body is None else parsed_json(body, FactorizeRequest)
            options = SearchOptions.of(reference=Picture.of(asked), edit=asked.edit)
            return FactorizationModel.of(*engine.snapshot().factorize(options))

        return _json(await pool.run(work))

    @router.post("/references", response_model=ReferenceInfo, responses=_ASKED, openapi_extra=described(SentReference))
    async def open_reference(
        request: Request, reference: Annotated[UploadFile | None, File(description="A picture.")] = None
    ) -> Response:
        """Send and encode a reference once; its key then names it."""
        body = await json_body(request)

        def work() -> ReferenceInfo:
            if body is None:
                picture = Picture(reference)
            else:
                sent = parsed_json(body, SentReference)
                picture = Picture(sent.reference, url=sent.reference_url)
            return ReferenceInfo.of(engine.snapshot().pictures.open(picture))

        return _json(await pool.run(work))

    @router.post("/rank", response_model=SearchResult, responses=_ASKED, openapi_extra=described(RankRequest))
    async def rank(request: Request) -> Response:
        """Rank by a spec. No factorizer runs, and a known reference is not encoded again.

        Without a reference the words decide alone, without a spec the reference does: `searched_by` says what ran.
        """
        body = await json_body(request, form=False)

        def work() -> dict[str, Any]:
            asked = parsed_json(body or b"", RankRequest)
            named = any(getattr(asked, name) is not None for name in WAYS)
            return answered(question(asked, like=named and asked.spec is None))

        return _json(await pool.run(work))

    @router.get("/gallery", response_model=schemas.Gallery, responses=problem_replies(400, 422, 429, 503))
    async def gallery(
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=0, le=PAGE)] = 0,
        where: Annotated[str | None, Query(description="A filter on metadata.")] = None,
    ) -> Response:
        """What is served, by which encoder, factorizer and kernel; with `limit`, a page of its pictures."""
        return _json(await pool.run(_gallery, engine, offset, limit, where))

    return router


def _gallery(engine: Engine, offset: int, limit: int, where: str | None) -> schemas.Gallery:
    gallery, card, limits = engine.snapshot().view(where), engine.encoder.card, engine.settings.limits
    entries = gallery.entries(range(min(offset, len(gallery)), min(offset + limit, len(gallery))))
    columns = gallery.columns()
    return schemas.Gallery(
        name=gallery.path.name,
        count=len(gallery),
        snapshot=gallery.manifest.snapshot or 0,
        pictures=[
            schemas.Picture(
                id=entry.id,
                name=title_of(entry.id, entry.metadata, entry.caption),
                width=entry.width,
                height=entry.height,
                metadata=entry.metadata,
                caption=entry.caption or None,
            )
            for entry in entries
        ],
        metadata_keys=[column.name for column in columns],
        column_types={column.name: column.type for column in columns},
        encoder=card.name,
        extractor=card.extractor,
        grid=list(card.grid),
        precision=gallery.precision,
        factorizer=engine.factorizer.name,
        kernel=engine.kernel_name,
        factors=[FactorModel.of(row) for row in FACTORS],
        weights=DEFAULT_WEIGHTS.as_dict(),
        options=SearchOptions.model_json_schema()["properties"],
        first_stage=has_first_stage(gallery),
        near_duplicates=near_duplicates.usual(gallery),
        upload_bytes=limits.bytes,
        upload_pixels=limits.pixels,
        export_pictures=engine.settings.most_exported,
        shows_in_folder=engine.settings.show_in_folder,
        version=tapr.__version__,
    )


def _json(value: Any) -> Response:
    return Response(to_json(json_ready(value)), media_type="application/json")
