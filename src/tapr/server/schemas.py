"""What goes out over HTTP beside rankings. Types only: what the values mean is told where they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tapr.errors import CODES
from tapr.options import SpecValue, WeightsForm
from tapr.query.factorization import Factorization
from tapr.query.factors import Factor, FactorRow
from tapr.query.reference import Reference
from tapr.result import ReferenceInfo
from tapr.store.columns import ColumnType


@dataclass(frozen=True)
class CaptionModel:
    text: str
    score: Annotated[float, Field(description="How sure it is, from 0 to 1.")]
    sure: bool


@dataclass(frozen=True)
class FactorizationModel:
    spec: SpecValue
    factorizer: str
    notes: tuple[str, ...]
    caption: Annotated[
        CaptionModel | None, Field(description="What the reference shows; null where no captioner looked.")
    ]
    operations: Annotated[tuple[str, ...], Field(description="What the edit did to the caption, step by step.")]
    reference: ReferenceInfo

    @classmethod
    def of(cls, made: Factorization, reference: Reference) -> FactorizationModel:
        caption, operations = made.details.get("caption"), tuple(made.details.get("operations", ()))
        told = caption and CaptionModel(caption["text"], caption["score"], caption["sure"])
        return cls(made.spec, made.factorizer, made.notes, told, operations, ReferenceInfo.of(reference))


class PictureModel(BaseModel):
    id: str
    name: str
    width: int | None
    height: int | None
    metadata: dict[str, Any]
    caption: str | None


class FactorModel(BaseModel):
    """One factor of the score, as tapr.query.factors has it."""

    name: Factor
    sign: int = Field(description="-1: evidence for it counts against a picture.")
    from_words: bool = Field(description="false: it comes from the reference picture.")
    of_picture: bool = Field(description="It speaks of the reference: without one there is nothing to say.")
    weight: float | None = Field(description="Used where a request gives none; null: decided by `reference_weight`.")
    colour: str = Field(description="Of its bars and heat maps, as #rrggbb.")
    hint: str

    @classmethod
    def of(cls, row: FactorRow) -> FactorModel:
        return cls(
            name=row.name,
            sign=row.sign,
            from_words=row.from_words,
            of_picture=row.half_is_picture or not row.from_words,
            weight=row.weight,
            colour=row.css,
            hint=row.hint,
        )


class GalleryModel(BaseModel):
    """What is served and by what; `pictures` is one page of it."""

    name: str
    count: int = Field(description="Pictures in the gallery, after `where`.")
    snapshot: int = Field(description="The state of the gallery; every index run makes a new one.")
    pictures: list[PictureModel]
    metadata_keys: list[str]
    column_types: dict[str, ColumnType] = Field(description="Of the metadata: number, boolean, date or text.")
    encoder: str
    extractor: str
    grid: list[int] = Field(description="Rows and columns of the local vectors.")
    precision: str
    factorizer: str
    kernel: str
    factors: list[FactorModel] = Field(description="What a score is made of, in the order to show it.")
    weights: WeightsForm = Field(description="Used where a request gives none.")
    options: dict[str, Any] = Field(description="The options of a search by name: type, range, default, description.")
    first_stage: bool = Field(description="Whether a search can take `prefilter` and `budget_ms`: tapr first-stage.")
    near_duplicates: float = Field(
        description="The usual value of the option `near_duplicates` here: the page shows such pictures as one."
    )
    upload_bytes: int
    upload_pixels: int
    export_pictures: int = Field(description="The most pictures that POST /api/export packs into one ZIP.")
    shows_in_folder: bool = Field(description="Whether POST /api/show opens the file manager of the server's machine.")
    version: str


class Problem(BaseModel):
    """RFC 9457. `detail` is the sentence that the command line would print."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="What is wrong, as a short name that does not change.", examples=list(CODES))
    option: str | None = Field(None, description="The option that it is about, where it is about one.")


_ERRORS = {
    400: "The request cannot be done as asked.",
    401: "No token, or one that the server does not know.",
    403: "The token does not allow it, writing is off, or a page of another site asks.",
    404: "No such picture or reference.",
    408: "The request did not arrive in time.",
    409: "The idempotency key came with another request before.",
    413: "The upload or the picture is too large, or the gallery is full.",
    415: "The upload is not a picture that can be read.",
    422: "A field is missing or of the wrong type.",
    429: "Busy: ask again after Retry-After seconds.",
    503: "The gallery or the factorizer cannot be used now, or the answer took too long.",
}


def problem_replies(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer beside its result, for OpenAPI; app.py puts Problem among the components."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _ERRORS[status], "content": content} for status in statuses}
