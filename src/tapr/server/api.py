"""The routes that ask and answer. Each reads its request and hands the work to a thread behind the gate."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, File, Form, Query, UploadFile
from pydantic import BaseModel
from starlette.responses import Response

import tapr
from tapr.errors import BadInput
from tapr.query.crop import cropped
from tapr.query.factorization import Factorization
from tapr.query.factors import FACTORS
from tapr.query.scoring import DEFAULT_SCORING, ReferenceFeatures, Rule, Scoring
from tapr.query.single_modality import WORDS, picture_alone, words_alone
from tapr.query.spec import DEFAULT_WEIGHTS, EditSpec, Weights
from tapr.result import title_of
from tapr.score.compile import TAU
from tapr.search import near_duplicates as alike
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.named import CROP, named_reference, opened, with_others
from tapr.server.schemas import (
    DEFAULT_K,
    FactorizationModel,
    FactorModel,
    GalleryModel,
    PictureModel,
    RankingModel,
    RankRequest,
    ReferenceModel,
    WeightsModel,
    problem_replies,
)

SERVED_METHODS = ("tapr",)
_SCORE, _REFERENCE_FEATURES = DEFAULT_SCORING.rule, DEFAULT_SCORING.reference_features
PAGE = 200  # pictures of one /api/gallery reply

_ReferenceFile = Annotated[UploadFile | None, File(description="A picture. Or give reference_id or reference_key.")]
_ReferenceId = Annotated[str | None, Form(description="The id of a gallery picture.")]
_ReferenceKey = Annotated[str | None, Form(description="The reference.key of an earlier reply.")]
_ASKED = problem_replies(400, 404, 413, 415, 422, 429, 503)


class _Page(TypedDict):
    offset: int
    threshold: float | None
    explain: bool
    near_duplicates: float | None


def api_router(engine: Engine, gate: ConcurrencyLimit) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.post("/search", response_model=RankingModel, responses=_ASKED)
    async def search(
        reference: _ReferenceFile = None,
        reference_id: _ReferenceId = None,
        reference_key: _ReferenceKey = None,
        edit: Annotated[str | None, Form(description="What should be different, in words.")] = None,
        spec: Annotated[str | None, Form(description="Instead of an edit: a spec as JSON text.")] = None,
        text: Annotated[str | None, Form(description="Search by words alone, without a reference.")] = None,
        like: Annotated[bool, Form(description="Search by the reference alone, without words.")] = False,
        k: Annotated[int, Form(ge=1, description="How many pictures to return, up to the whole gallery.")] = DEFAULT_K,
        offset: Annotated[
            int, Form(ge=0, le=2**53, description="How many of the best to leave out: the next page.")
        ] = 0,
        threshold: Annotated[float | None, Form(description="Leave out pictures whose score is below this.")] = None,
        explain: Annotated[bool, Form(description="With the parts of every score.")] = True,
        method: Annotated[str, Form(description="How pictures are ranked: tapr.")] = "tapr",
        weights: Annotated[str | None, Form(description="T,A,P,R such as 1,0.5,0.5,0.3, or add=0.8,remove=0")] = None,
        tau: Annotated[float, Form(description="Temperature of the soft late interaction.")] = TAU,
        score: Annotated[Rule, Form(description="paper, fixed or adaptive: how much the reference weighs.")] = _SCORE,
        reference_weight: Annotated[float | None, Form(description="0: the words decide; 1: the picture does.")] = None,
        reference_features: Annotated[
            ReferenceFeatures, Form(description="What of the reference stays: local, global, both.")
        ] = _REFERENCE_FEATURES,
        where: Annotated[str | None, Form(description="A filter on metadata, such as: price < 40")] = None,
        keep_reference: Annotated[bool, Form(description="Leave the reference in the ranking.")] = False,
        crop: Annotated[str | None, Form(description=CROP)] = None,
        more_references: Annotated[str | None, Form(description="Up to two further references, as JSON text.")] = None,
        near_duplicates: Annotated[
            float | None, Form(description="Mark hits that are alike to a better one by at least this cosine, as 0.97.")
        ] = None,
    ) -> Response:
        """Rank the gallery for "like this picture, but ...": an edit is factorized, a spec is not.

        Or by words alone, with text; or by a picture alone, with like.
        """

        def work() -> RankingModel:
            if method not in SERVED_METHODS:
                raise BadInput(f"unknown method {method[:80]!r}: choose {', '.join(SERVED_METHODS)}")
            theta = Weights.parse(weights) if weights else None
            given = EditSpec.from_json(spec) if spec is not None else None
            scoring = Scoring(score, reference_weight, reference_features)
            page: _Page = {
                "offset": offset,
                "threshold": threshold,
                "explain": explain,
                "near_duplicates": near_duplicates,
            }
            beside = {"edit": edit, "spec": spec, "weights": weights, "reference_weight": reference_weight}
            if text is not None:
                named = next((one for one in (reference, reference_id, reference_key) if one is not None), None)
                others = {"reference": named, "like": like or None, "crop": crop, "more_references": more_references}
                asked = words_alone(text, {**beside, **others})
                ranking = engine.rank(None, asked, k, tau=tau, where=where, **page)
                return RankingModel.of(ranking, None, None)
            picture = named_reference(engine, reference, reference_id, reference_key)
            pictures = with_others(engine, picture, crop, more_references)
            if like:
                asked, scoring = picture_alone(beside), Scoring(reference_features=reference_features)
            else:
                asked = engine.factorize(picture, edit, given)
            ranking = engine.rank(
                pictures, asked, k,
                weights=theta, tau=tau, scoring=scoring, where=where, exclude_reference=not keep_reference, **page,
            )  # fmt: skip
            return RankingModel.of(ranking, ReferenceModel.of(pictures[0], reference_id), theta)

        return _json(await gate.run(work))

    @router.post("/factorize", response_model=FactorizationModel, responses=_ASKED)
    async def factorize(
        edit: Annotated[str, Form(description="What should be different, in words.")],
        reference: _ReferenceFile = None,
        reference_id: _ReferenceId = None,
        reference_key: _ReferenceKey = None,
    ) -> Response:
        """Turn a picture and an edit into Target, Add, Preserve and Remove."""

        def work() -> FactorizationModel:
            picture = named_reference(engine, reference, reference_id, reference_key)
            return FactorizationModel.of(engine.factorize(picture, edit), ReferenceModel.of(picture, reference_id))

        return _json(await gate.run(work))

    @router.post("/references", response_model=ReferenceModel, responses=_ASKED)
    async def open_reference(reference: Annotated[UploadFile, File(description="A picture.")]) -> Response:
        """Upload and encode a reference once; its key then names it."""
        return _json(await gate.run(lambda: ReferenceModel.of(named_reference(engine, reference, None, None), None)))

    @router.post("/rank", response_model=RankingModel, responses=_ASKED)
    async def rank(request: RankRequest) -> Response:
        """Rank by a spec. No factorizer runs, and a known reference is not encoded again.

        Without a reference the words decide alone, without a spec the reference does: `searched_by` says what ran.
        """

        def work() -> RankingModel:
            theta = request.weights.parsed() if request.weights else None
            spec = request.spec.parsed() if request.spec else None
            page: _Page = {
                "offset": request.offset, "threshold": request.threshold,
                "explain": request.explain, "near_duplicates": request.near_duplicates,
            }  # fmt: skip
            if request.reference_id is None and request.reference_key is None:
                request.refuse_without_reference()
                assert spec is not None
                asked = Factorization(spec, WORDS)
                ranking = engine.rank(
                    None, asked, request.k, weights=theta, tau=request.tau, where=request.where, **page
                )
                return RankingModel.of(ranking, None, theta)
            first = named_reference(engine, None, request.reference_id, request.reference_key)
            pictures = [cropped(first, request.crop), *opened(engine, request.more_references)]
            if spec is None:
                asked = picture_alone({"weights": theta, "reference_weight": request.reference_weight})
            else:
                asked = engine.factorize(first, None, spec)
            ranking = engine.rank(
                pictures, asked, request.k,
                weights=theta, tau=request.tau, scoring=request.scoring(), where=request.where,
                exclude_reference=not request.keep_reference, **page,
            )  # fmt: skip
            return RankingModel.of(ranking, ReferenceModel.of(pictures[0], request.reference_id), theta)

        return _json(await gate.run(work))

    @router.get("/gallery", response_model=GalleryModel, responses=problem_replies(400, 422, 429, 503))
    async def gallery(
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=0, le=PAGE)] = 0,
        where: Annotated[str | None, Query(description="A filter on metadata.")] = None,
    ) -> Response:
        """What is served, by which encoder, factorizer and kernel; with `limit`, a page of its pictures."""
        return _json(await gate.run(_gallery, engine, offset, limit, where))

    return router


def _gallery(engine: Engine, offset: int, limit: int, where: str | None) -> GalleryModel:
    gallery, card, limits = engine.view(where), engine.encoder.card, engine.settings.limits
    entries = gallery.entries(range(min(offset, len(gallery)), min(offset + limit, len(gallery))))
    columns = gallery.columns()
    return GalleryModel(
        name=gallery.path.name,
        count=len(gallery),
        snapshot=gallery.manifest.snapshot or 0,
        pictures=[
            PictureModel(
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
        weights=WeightsModel.model_validate(DEFAULT_WEIGHTS.as_dict()),
        alike=alike.usual(gallery),
        upload_bytes=limits.bytes,
        upload_pixels=limits.pixels,
        export_pictures=engine.settings.most_exported,
        shows_in_folder=engine.settings.show_in_folder,
        version=tapr.__version__,
    )


def _json(model: BaseModel) -> Response:
    return Response(model.model_dump_json(), media_type="application/json")
