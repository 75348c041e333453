"""Define the answers of the server beside rankings, for OpenAPI and the client. FastAPI is not needed here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tapr.errors import CODES
from tapr.options import SpecValue, WeightsForm
from tapr.query.factorization import Factorization
from tapr.query.factors import Factor, FactorRow
from tapr.query.reference import Reference
from tapr.result import ReferenceInfo
from tapr.store.columns import ColumnType
from tapr.store.write_operations import What


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


class _Answer(BaseModel):
    """An answer of the server, also for the client. Fields that a newer server adds are passed over."""

    model_config = ConfigDict(frozen=True)


class Picture(_Answer):
    """A picture in the list of a gallery."""

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


class Gallery(_Answer):
    """A gallery, what serves it, and a page of its pictures."""

    name: str
    count: int = Field(description="Pictures in the gallery, after `where`.")
    snapshot: int = Field(description="The state of the gallery; every index run makes a new one.")
    pictures: list[Picture]
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


class Listed(_Answer):
    """A gallery in the list of those that a server has."""

    name: str
    count: int = Field(description="Pictures in the gallery.")
    snapshot: int
    may_write: bool = Field(description="Whether the asker may put and delete pictures.")
    used_bytes: int | None = Field(
        None, description="Of uploads, and of vectors and metadata of all pictures; null: it cannot be written to."
    )
    quota_pictures: int | None = Field(None, description="Pictures that it may hold; null: any number.")
    quota_bytes: int | None = Field(None, description="What used_bytes may come to; null: any number.")


class Galleries(_Answer):
    galleries: list[Listed] = Field(description="Those that the asker may read; the plain routes are the first's.")


class SavedPicture(_Answer):
    """A picture of a saved search."""

    role: Literal["reference", "more_like", "not_like"]
    id: str | None = Field(description="Its gallery id, when it was given by one.")
    key: str = Field(description="Names it as reference_key, once the search has run.")
    crop: tuple[float, float, float, float] | None


class SavedSearch(_Answer):
    """A saved search. A picture fits it if it meets `where` and its score is at least `threshold`."""

    name: str
    words: str | None = Field(description="The edit or the text, as it was asked.")
    spec: dict[str, Any]
    weights: dict[str, float]
    reference_weight: float | None
    pictures: list[SavedPicture]
    k: int
    where: str | None
    threshold: float
    saved: datetime
    webhook: str | None = Field(description="The host that new matches are posted to.")
    matches: int = Field(description="New pictures found so far, of the last 1,000.")


class SavedSearches(_Answer):
    """The saved searches of a gallery."""

    searches: list[SavedSearch]


class BatchResult(_Answer):
    """One line of the answer to a batch. One that failed has a status of 400 or more, and `detail` says why."""

    line: int
    status: int
    id: str | None = None
    done: What | None = None
    snapshot: int | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    caption: str | None = None
    detail: str | None = Field(None, description="What was wrong with the line.")

    @property
    def ok(self) -> bool:
        return self.status < 400


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
