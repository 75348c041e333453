"""The answer to a search: its hits and everything that decided them. One JSON form for library, command line and API.

`SearchResult` is plain data: what `to_dict` writes and `from_dict` reads, what the server sends and its client hands
out. `Ranking` is the same with the opened gallery, the compiled query and the pictures beside it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.options import SpecValue, WeightsValue
from tapr.query.factors import BY_NAME, Factor, Reads
from tapr.query.reference import Reference
from tapr.query.scoring import Rule
from tapr.query.spec import EditSpec
from tapr.score.compile import CompiledQuery
from tapr.utils.amounts import counted

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image

SearchedBy = Literal["a picture and words", "words alone", "a picture alone"]
Found = Literal["found", "maybe", "not found"]
_CONFIG = ConfigDict(json_schema_serialization_defaults_required=True)


@dataclass(frozen=True)
class Proof:
    """Whether a search that read only some pictures found the k best of all: see tapr.search.prefilter."""

    read: Annotated[int, Field(description="Pictures read in full: scored exactly, or ruled out by their vectors.")]
    open: Annotated[int, Field(description="Further ones that no bound rules out.")]
    pictures: Annotated[int, Field(description="Stored, of those that were searched.")]
    proven: Annotated[bool, Field(description="Whether these are the best of all.")] = False
    __pydantic_config__ = _CONFIG

    def __post_init__(self) -> None:
        object.__setattr__(self, "proven", self.open == 0)

    @property
    def sentence(self) -> str:
        read = f"{self.read:,} of {counted(self.pictures, 'picture')} read in full"
        if self.proven:
            return f"exact: proven; {read}, and bounds rule out the others"
        return (
            f"exact: not proven; {read}, and {self.open:,} more could not be ruled out (prefilter 'exact' reads them)"
        )


@dataclass(frozen=True)
class Contribution:
    """The part of a hit's score that one term adds; negative for Remove."""

    id: Annotated[
        str,
        Field(description="Names the term within the answer, such as target, add:2 or reference:1:local; from 0 on."),
    ]
    factor: Factor
    text: Annotated[str, Field(description="What people call it: the words of an atom, or what is compared.")]
    value: float
    peak: Annotated[
        float | None, Field(description="An atom's best cosine with a place in the picture; null: it has no place.")
    ] = None
    reads: Annotated[
        Reads, Field(description="local: it has a place in the picture, and a heat map; global: it has none.")
    ] = "global"
    found: Annotated[
        Found | None,
        Field(
            description="Whether the picture shows what the atom names: it must beat what contradicts it (a blue shirt "
            "a red one). null: nothing to say: it cannot be checked, or is the same for all hits. The server says it; "
            "in Python tapr.explain.marks.marked does."
        ),
    ] = None
    __pydantic_config__ = _CONFIG

    @property
    def label(self) -> str:
        """Its name beside a score: Target by its label, because its sentence stands elsewhere."""
        return BY_NAME[self.factor].label if self.factor == "target" else self.text


@dataclass(frozen=True)
class Hit:
    rank: int  # from 1
    id: str
    score: float
    contributions: Annotated[
        tuple[Contribution, ...],
        Field(description="They sum to the score; those of remove are negative. Empty without explain."),
    ] = ()
    path: Annotated[str, Field(description="Of its file; a server does not tell it.")] = ""
    name: Annotated[str, Field(description="What a person would call it: its name, its caption, or its id.")] = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    caption: Annotated[str | None, Field(description="What it shows, where the index described it and was sure.")] = (
        None
    )
    width: int | None = None  # of the picture, in pixels
    height: int | None = None
    near_duplicate_of: Annotated[
        str | None, Field(description="The id of a better hit that it nearly equals, where near_duplicates was asked.")
    ] = None
    __pydantic_config__ = _CONFIG

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", title_of(self.id, self.metadata, self.caption))

    def image(self) -> Image.Image:
        """Open the picture, upright and in RGB."""
        from tapr.images.decode import load_image

        if not self.path:
            raise BadInput(f"the path of {self.id!r} is not told: ask the server for the picture")
        return load_image(self.path)


@dataclass(frozen=True)
class ReferenceInfo:
    """A reference as an answer tells of it."""

    key: Annotated[str, Field(description="Names the opened reference in later requests, without a new upload.")]
    id: Annotated[str | None, Field(description="Its gallery id, when it was given by one.")]
    width: int
    height: int
    crop: Annotated[tuple[float, ...] | None, Field(description="The part of it that counts; null: all of it.")] = None
    __pydantic_config__ = _CONFIG

    @classmethod
    def of(cls, reference: Reference) -> ReferenceInfo:
        return cls(reference.sha256, reference.id, *reference.image.size, crop=reference.crop)


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """A ranking and everything that decided it."""

    hits: tuple[Hit, ...]
    method: str
    searched_by: SearchedBy
    spec: SpecValue
    weights: Annotated[WeightsValue, Field(description="Of the factors, as they were used.")]
    reference: Annotated[ReferenceInfo | None, Field(description="The first one; null: a search by words alone.")]
    factorizer: str
    encoder: str
    extractor: str
    kernel: Annotated[str | None, Field(description="What matched; null: there was nothing to match.")]
    rescored: Annotated[
        int | None, Field(description="Pictures read exactly, where a cheaper reading ruled out the others.")
    ] = None
    prefilter: Annotated[
        Proof | None, Field(description="Of a search by a prefilter: whether these are the best of all.")
    ] = None
    score: Annotated[Rule | None, Field(description="The rule that ranked; null: another method did.")]
    tau: float
    reference_weight: Annotated[
        float | None, Field(description="How much of the reference stayed; null: as the paper weighs it.")
    ] = None
    reference_weight_notes: Annotated[
        tuple[str, ...], Field(description="Those of the notes that say why so much of the reference stayed.")
    ] = ()
    searched: Annotated[int, Field(description="Pictures that were scored.")]
    snapshot: Annotated[
        int, Field(description="The state of the gallery that was searched; every index run makes a new one.")
    ]
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    __pydantic_config__ = _CONFIG

    def to_dict(self, *, paths: bool = True) -> dict[str, Any]:
        """JSON-ready. Without `paths` it does not tell where files lie."""
        out = {one.name: json_ready(getattr(self, one.name)) for one in fields(SearchResult)}
        out["seconds"] = {name: round(value, 5) for name, value in self.seconds.items()}
        for hit in out["hits"] if not paths else ():
            hit["path"] = ""
        return out

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> SearchResult:
        """What `to_dict` wrote; keys that a newer version adds are passed over."""
        try:
            return _adapter().validate_python(value)
        except (ValidationError, BadInput) as error:
            raise TaprError(f"this is no answer to a search that can be read here: {str(error)[:200]!r}") from None


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranking(SearchResult):
    """An answer with what it was made of."""

    query: CompiledQuery
    gallery: Gallery  # the part that was searched
    references: tuple[Reference, ...] = ()  # all of them, opened

    def _repr_html_(self) -> str:
        """Show thumbnails and marks in a notebook."""
        return str(_notebook().html_of(self))

    def __repr__(self) -> str:
        best = f", best {self.hits[0].id!r}" if self.hits else ""
        return f"<Ranking: {counted(len(self.hits), 'hit')} of {counted(self.searched, 'picture')}{best}>"

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per hit, with the columns of the metadata; pandas is imported here."""
        table: pd.DataFrame = _notebook().data_frame(self.hits)
        return table

    @property
    def matched(self) -> str:
        """Which kernel ran, and how many pictures it read exactly."""
        pictures = counted(len(self.gallery), "picture")
        read = "" if self.rescored is None else f", {self.rescored:,} of {pictures} read exactly"
        return f"kernel {self.kernel or 'none'}{read}"

    @property
    def scored(self) -> str:
        """By which score, and how much of the reference stayed; "" for other methods, and without a reference."""
        if self.score is None or self.reference is None:
            return ""
        weight = self.reference_weight
        stayed = "" if weight is None else f", reference weight {weight:.2f} (0: the words decide, 1: the picture)"
        return f", score {self.score}{stayed}"


def _notebook() -> Any:
    """Load what shows answers in notebooks: it is above this module, and loaded when a notebook asks for it."""
    return importlib.import_module("tapr.explain.notebook")


def title_of(id_: str, metadata: Mapping[str, Any], caption: str | None) -> str:
    """What a person would call a picture: its name in the metadata, else its caption, else its id."""
    return str(metadata.get("name") or caption or id_)


@cache
def _adapter() -> TypeAdapter[SearchResult]:
    return TypeAdapter(SearchResult)


def json_ready(value: Any) -> Any:
    """Answers of ours as JSON has them."""
    if isinstance(value, (tuple, list)):
        return [json_ready(one) for one in value]
    if isinstance(value, EditSpec):
        return value.to_dict()
    if is_dataclass(value):
        return {name: json_ready(part) for name, part in vars(value).items()}
    return value
