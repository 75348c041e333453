"""A ranking: the hits of a search, and everything that decided them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tapr.gallery import Gallery
from tapr.query.factors import Factor
from tapr.query.reference import Reference
from tapr.query.scoring import DEFAULT_SCORING, Scoring
from tapr.query.single_modality import PICTURE, WORDS
from tapr.query.spec import EditSpec
from tapr.score.compile import CompiledQuery

SearchedBy = Literal["a picture and words", "words alone", "a picture alone"]


@dataclass(frozen=True)
class Proof:
    """Whether a search that read only some pictures found the k best of all: see tapr.search.prefilter."""

    read: int  # pictures whose exact score was calculated
    open: int  # further ones that no bound rules out
    pictures: int  # stored, of those that were searched

    @property
    def proven(self) -> bool:
        return self.open == 0

    @property
    def sentence(self) -> str:
        read = f"{self.read:,} of {self.pictures:,} pictures were read exactly"
        if self.proven:
            return f"exact: proven; {read}, and bounds rule out the others"
        return (
            f"exact: not proven; {read}, and {self.open:,} more could not be ruled out (first stage 'exact' reads them)"
        )

    def to_dict(self) -> dict[str, int | bool]:
        return {"proven": self.proven, "read": self.read, "open": self.open, "pictures": self.pictures}


@dataclass(frozen=True)
class Contribution:
    """What one term adds to a hit's score; negative for Remove."""

    factor: Factor
    text: str
    value: float
    peak: float | None = None  # the best cosine of an atom with a place in the picture: see explain.calibration


@dataclass(frozen=True)
class Hit:
    rank: int  # from 1
    id: str
    path: str
    score: float
    contributions: tuple[Contribution, ...]  # they sum to the score
    metadata: dict[str, Any] = field(default_factory=dict)
    caption: str | None = None  # what it shows, where the index described it and was sure
    width: int | None = None  # of the picture, in pixels
    height: int | None = None
    near_duplicate_of: str | None = (
        None  # the id of a better hit that it is equal to, or nearly, where that was asked for
    )

    @property
    def title(self) -> str:
        return title_of(self.id, self.metadata, self.caption)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The answer, and everything that decided it."""

    hits: tuple[Hit, ...]
    spec: EditSpec
    factorizer: str
    encoder: str
    extractor: str
    kernel: str
    searched: int  # pictures that were scored
    notes: tuple[str, ...]
    seconds: dict[str, float]
    query: CompiledQuery
    reference: Reference | None  # the first one; None: a search by words alone
    gallery: Gallery  # the part that was searched
    method: str = "tapr"
    rescored: int | None = None  # pictures read exactly, where a cheaper reading ruled out the others
    proof: Proof | None = None  # of a search by a first stage: whether these are the best of all
    scoring: Scoring = DEFAULT_SCORING
    reference_weight: float | None = None  # how much of the reference stayed; None: as the paper weighs it
    reference_weight_notes: tuple[str, ...] = ()  # those of the notes that say why so much
    references: tuple[Reference, ...] = ()  # all of them

    @property
    def searched_by(self) -> SearchedBy:
        """What ran: a picture and words together, or one of them alone."""
        if self.reference is None:
            return WORDS
        return PICTURE if self.reference_weight == 1 else "a picture and words"

    @property
    def matched(self) -> str:
        """Which kernel ran, and how many pictures it read exactly."""
        read = "" if self.rescored is None else f", {self.rescored:,} of {len(self.gallery):,} pictures read exactly"
        return f"kernel {self.kernel}{read}"

    @property
    def scored(self) -> str:
        """By which score, and how much of the reference stayed; "" for other methods, and without a reference."""
        if self.method != "tapr" or self.reference is None:
            return ""
        stayed = (
            ""
            if self.reference_weight is None
            else f", stay {self.reference_weight:.2f} (0: the words decide, 1: the picture)"
        )
        return f", score {self.scoring.rule}{stayed}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "hits": [
                {
                    "rank": hit.rank,
                    "id": hit.id,
                    "path": hit.path,
                    "score": hit.score,
                    "contributions": [
                        {"factor": part.factor, "text": part.text, "value": part.value, "peak": part.peak}
                        for part in hit.contributions
                    ],
                    "metadata": hit.metadata,
                    "caption": hit.caption,
                }
                for hit in self.hits
            ],
            "method": self.method,
            "spec": self.spec.to_dict(),
            "factorizer": self.factorizer,
            "encoder": self.encoder,
            "extractor": self.extractor,
            "kernel": self.kernel,
            "rescored": self.rescored,
            "first_stage": None if self.proof is None else self.proof.to_dict(),
            "score": self.scoring.rule if self.method == "tapr" else None,
            "reference_weight": self.reference_weight,
            "tau": self.query.tau,
            "searched": self.searched,
            "notes": list(self.notes),
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }


def title_of(id_: str, metadata: Mapping[str, Any], caption: str | None) -> str:
    """What a person would call a picture: its name in the metadata, else its caption, else its id."""
    return str(metadata.get("name") or caption or id_)
