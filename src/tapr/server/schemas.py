"""What goes in and out over HTTP. Types only: what the values mean is checked where the command line checks it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tapr.errors import BadInput
from tapr.explain.calibration import Found
from tapr.explain.marks import marks
from tapr.query.factorization import Factorization
from tapr.query.factors import Factor, FactorRow, Reads
from tapr.query.reference import Reference
from tapr.query.scoring import DEFAULT_SCORING, ReferenceFeatures, Rule, Scoring
from tapr.query.spec import DEFAULT_WEIGHTS, EditSpec, Weights
from tapr.result import Ranking, SearchedBy
from tapr.score.compile import TAU
from tapr.server.named import CROP, MoreReferenceModel
from tapr.store.columns import ColumnType

DEFAULT_K = 24


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WeightsModel(_Model):
    """theta of the four factors; only their ratios matter. 0 switches a factor off."""

    target: float = DEFAULT_WEIGHTS.target
    add: float = DEFAULT_WEIGHTS.add
    preserve: float = DEFAULT_WEIGHTS.preserve
    remove: float = DEFAULT_WEIGHTS.remove

    def parsed(self) -> Weights:
        return Weights.parse(self.model_dump())


class SpecModel(_Model):
    """One composed query in words."""

    target: str = Field(description="One sentence that describes the whole picture wanted.")
    add: list[str] = Field([], description="Short phrases for what the picture must show.")
    preserve: list[str] = Field([], description="Short phrases for what it keeps of the reference.")
    remove: list[str] = Field([], description="Short phrases for what it must not show.")
    weights: WeightsModel | None = None
    atom_weights: dict[str, float] | None = Field(None, description="Weight of an atom within its factor, 1 if unsaid.")
    continuity: float | None = Field(
        None, description="How much of the reference stays, 0 to 1; null: the rule decides."
    )
    readings: dict[str, float] | None = Field(
        None, description="Further sentences beside Target, and their weights; Target's own is 1."
    )
    kind: str | None = Field(None, description="The kind of edit, which decides how much of the reference stays.")

    def parsed(self) -> EditSpec:
        return EditSpec.from_dict(self.model_dump(exclude_none=True))


class RankRequest(_Model):
    """A spec and a reference that the server knows: by gallery id, or by the key of an earlier reply.

    Without a reference the words decide alone; without a spec, the reference.
    """

    spec: SpecModel | None = Field(None, description="null: a search by the reference alone.")
    reference_id: str | None = None
    reference_key: str | None = None
    crop: list[float] | None = Field(None, description=CROP)
    more_references: list[MoreReferenceModel] = Field(
        [], description="Up to two further references; each has an equal part of what stays."
    )
    k: int = Field(DEFAULT_K, ge=1, description="How many pictures to return, up to the whole gallery.")
    offset: int = Field(0, ge=0, le=2**53, description="How many of the best to leave out: the next page.")
    threshold: float | None = Field(None, description="Leave out pictures whose score is below this.")
    explain: bool = Field(True, description="With the parts of every score; off: the scores alone, which is faster.")
    weights: WeightsModel | None = None
    tau: float = Field(TAU, description="Temperature of the soft late interaction.")
    score: Rule = Field(DEFAULT_SCORING.rule, description="The rule that decides how much of the reference stays.")
    reference_weight: float | None = Field(
        None, description="How much of the reference stays: 0 words decide, 1 the picture does."
    )
    reference_features: ReferenceFeatures = Field(
        DEFAULT_SCORING.reference_features, description="What of the reference stays: its parts, the whole, both."
    )
    where: str | None = Field(None, description="A filter on metadata, such as: class = 'dress' and price < 40")
    keep_reference: bool = Field(False, description="Leave the reference itself in the ranking.")
    near_duplicates: float | None = Field(
        None, description="Mark hits whose file is equal to a better hit's, or whose cosine with it is at least this."
    )

    def refuse_without_reference(self) -> None:
        """What weighs a picture means nothing where there is none."""
        if self.spec is None:
            raise BadInput("there is nothing to search by: give a spec, a reference (by id or key), or both")
        paper = self.score if self.score == "paper" else None
        given = {
            "crop": self.crop,
            "more_references": self.more_references or None,
            "reference_weight": self.reference_weight,
            "score": paper,
        }
        for name, value in given.items():
            if value is not None:
                raise BadInput(f"{name} goes with a reference picture: name one, or leave {name} out")

    def scoring(self) -> Scoring:
        return Scoring(self.score, self.reference_weight, self.reference_features)


class ContributionModel(BaseModel):
    factor: Factor
    text: str
    reads: Reads = Field(description="local: it has a place in the picture, and a heat map; global: it has none.")
    value: float
    peak: float | None = Field(description="An atom's best cosine with a place in the picture; null: it has no place.")
    found: Found | None = Field(
        description="Whether the picture shows what the atom names: it must beat what contradicts it (a blue shirt a "
        "red one). null: nothing to say, as it cannot be checked or is the same for all hits."
    )


class HitModel(BaseModel):
    rank: int
    id: str
    name: str
    score: float
    contributions: list[ContributionModel] = Field(
        description="They sum to the score; those of remove are negative. Empty without explain."
    )
    metadata: dict[str, Any]
    caption: str | None = Field(description="What it shows, where the index described it and was sure.")
    width: int | None
    height: int | None
    near_duplicate_of: str | None = Field(
        description="The id of a better hit that it is alike to, where `near_duplicates` was asked."
    )


class ReferenceModel(BaseModel):
    key: str = Field(description="Names the opened reference in later requests, without a new upload.")
    id: str | None = Field(description="Its gallery id, when it was given by one.")
    width: int
    height: int
    crop: list[float] | None = Field(description="The part of it that counts; null: all of it.")

    @classmethod
    def of(cls, reference: Reference, id_: str | None) -> ReferenceModel:
        width, height = reference.image.size
        crop = None if reference.crop is None else list(reference.crop)
        return cls(key=reference.sha256, id=id_, width=width, height=height, crop=crop)


class CaptionModel(BaseModel):
    text: str
    score: float = Field(description="How sure it is, from 0 to 1.")
    sure: bool


class FactorizationModel(BaseModel):
    spec: SpecModel
    factorizer: str
    notes: list[str]
    caption: CaptionModel | None = Field(description="What the reference shows; null where no captioner looked.")
    operations: list[str] = Field(description="What the edit did to the caption, step by step.")
    reference: ReferenceModel

    @classmethod
    def of(cls, factorization: Factorization, reference: ReferenceModel) -> FactorizationModel:
        caption = factorization.details.get("caption")
        return cls(
            spec=SpecModel.model_validate(factorization.spec.to_dict()),
            factorizer=factorization.factorizer,
            notes=list(factorization.notes),
            caption=caption and CaptionModel.model_validate(caption),
            operations=list(factorization.details.get("operations", ())),
            reference=reference,
        )


class RankingModel(BaseModel):
    hits: list[HitModel]
    spec: SpecModel
    weights: WeightsModel
    reference: ReferenceModel | None = Field(description="null: a search by words alone.")
    searched_by: SearchedBy
    factorizer: str
    encoder: str
    extractor: str
    kernel: str
    rescored: int | None = Field(description="Pictures read exactly, where a cheaper reading ruled out the others.")
    tau: float
    score: Rule
    reference_weight: float | None = Field(
        description="How much of the reference stayed; null: as the paper weighs it."
    )
    reference_weight_notes: list[str] = Field(
        description="Those of the notes that say why so much of the reference stayed."
    )
    searched: int = Field(description="Pictures that were scored.")
    snapshot: int = Field(description="The state of the gallery that was searched; every index run makes a new one.")
    notes: list[str]
    seconds: dict[str, float]

    @classmethod
    def of(cls, ranking: Ranking, reference: ReferenceModel | None, weights: Weights | None) -> RankingModel:
        # built from our own values: checking each of hundreds of them again would cost more than scoring them
        hits = [
            HitModel.model_construct(
                rank=hit.rank,
                id=hit.id,
                name=hit.title,
                score=hit.score,
                contributions=[
                    ContributionModel.model_construct(
                        factor=part.factor,
                        text=part.text,
                        reads=term.reads,
                        value=part.value,
                        peak=part.peak,
                        found=found,
                    )
                    for term, part, found in zip(ranking.query.terms, hit.contributions, told, strict=bool(told))
                ],
                metadata=hit.metadata,
                caption=hit.caption,
                width=hit.width,
                height=hit.height,
                near_duplicate_of=hit.near_duplicate_of,
            )
            for hit, told in zip(ranking.hits, marks(ranking), strict=True)
        ]
        used = weights or ranking.spec.weights or DEFAULT_WEIGHTS
        return cls.model_construct(
            hits=hits,
            spec=SpecModel.model_validate(ranking.spec.to_dict()),
            weights=WeightsModel.model_validate(used.as_dict()),
            reference=reference,
            searched_by=ranking.searched_by,
            factorizer=ranking.factorizer,
            encoder=ranking.encoder,
            extractor=ranking.extractor,
            kernel=ranking.kernel,
            rescored=ranking.rescored,
            tau=ranking.query.tau,
            score=ranking.scoring.rule,
            reference_weight=ranking.reference_weight,
            reference_weight_notes=list(ranking.reference_weight_notes),
            searched=ranking.searched,
            snapshot=ranking.gallery.manifest.snapshot or 0,
            notes=list(ranking.notes),
            seconds={name: round(value, 5) for name, value in ranking.seconds.items()},
        )


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
    weights: WeightsModel = Field(description="Used where a request gives none.")
    alike: float = Field(description="The cosine from which on the page shows pictures as one: see `near_duplicates`.")
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


_ERRORS = {
    400: "The request cannot be done as asked.",
    401: "No token, or a wrong one.",
    403: "The token does not allow it, writing is off, or a page of another site asks.",
    404: "No such picture or reference.",
    408: "The request did not arrive in time.",
    409: "The idempotency key came with another request before.",
    413: "The upload or the picture is too large.",
    415: "The upload is not a picture that can be read.",
    422: "A field is missing or of the wrong type.",
    429: "Busy: ask again after Retry-After seconds.",
    503: "The gallery or the factorizer cannot be used now, or the answer took too long.",
}


def problem_replies(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer beside its result, for OpenAPI; app.py puts Problem among the components."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _ERRORS[status], "content": content} for status in statuses}
