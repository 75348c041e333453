"""The route that describes the metadata columns."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.schemas import problem_replies
from tapr.store.columns import ColumnType
from tapr.store.facets import Facet


class FacetValueModel(BaseModel):
    value: str | bool
    count: int


class FacetModel(BaseModel):
    """What a column holds: `least` and `most` of numbers and dates, `values` of booleans and of few texts."""

    name: str
    type: ColumnType
    least: str | float | None
    most: str | float | None
    values: list[FacetValueModel] | None

    @classmethod
    def of(cls, facet: Facet) -> FacetModel:
        listed = [FacetValueModel(value=value, count=count) for value, count in facet.values or ()]
        values = None if facet.values is None else listed
        return cls(name=facet.name, type=facet.type, least=facet.least, most=facet.most, values=values)


class FacetsModel(BaseModel):
    facets: list[FacetModel] = Field(description="Of the columns that a person can choose by.")


def facet_router(engine: Engine, pool: ConcurrencyLimit) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/facets", response_model=FacetsModel, responses=problem_replies(422, 429, 503))
    async def facets() -> Response:
        """Ranges of numbers and dates, values where they are few: what a person can choose by."""

        def work() -> FacetsModel:
            return FacetsModel(facets=[FacetModel.of(facet) for facet in engine.gallery.facets()])

        return Response((await pool.run(work)).model_dump_json(), media_type="application/json")

    return router
