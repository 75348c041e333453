"""Relevance feedback: pictures that a person marked "more like this" or "not this one", opened and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tapr.encoders.base import EncoderCard
from tapr.errors import BadOption
from tapr.gallery import Gallery
from tapr.query.crop import kept_evidence
from tapr.query.factors import WordFactor
from tapr.query.reference import Reference
from tapr.score.compile import Feedback


@dataclass(frozen=True, eq=False)
class Marked:
    factor: WordFactor  # what it is evidence of: preserve or remove
    name: str  # what the answer calls it
    picture: Reference

    def compiled(self, card: EncoderCard) -> Feedback:
        return Feedback(self.factor, self.name, kept_evidence(self.picture, card))


def feedback_of(more_like: Sequence[Reference], not_like: Sequence[Reference], gallery: Gallery) -> list[Marked]:
    """Each is named by its gallery id, or by its number where the gallery does not have it."""
    for one in not_like:
        if any((one.sha256, one.crop) == (other.sha256, other.crop) for other in more_like):
            what = f"{_name(one, 1, gallery)} is marked more_like and not_like: leave it out of one of them"
            raise BadOption(what, "not_like", "conflicting_options")
    marked: list[tuple[WordFactor, Sequence[Reference]]] = [("preserve", more_like), ("remove", not_like)]
    return [
        Marked(factor, _name(one, number, gallery), one)
        for factor, pictures in marked
        for number, one in enumerate(pictures, 1)
    ]


def _name(picture: Reference, number: int, gallery: Gallery) -> str:
    if picture.id is not None:
        return picture.id
    known = gallery.positions_of(picture.sha256)[:1].tolist()
    return gallery.entries(known)[0].id if known else f"picture {number}"


def said_of(feedback: Sequence[Marked], *, left_out: bool) -> tuple[str, ...]:
    """What the answer says of it."""
    if not feedback:
        return ()
    told = []
    for words, factor in (("more like", "preserve"), ("not like", "remove")):
        names = [one.name for one in feedback if one.factor == factor]
        told += [f"{words} {', '.join(names)}"] if names else []
    return (f"your marks count: {'; '.join(told)}{' (left out of the answer)' if left_out else ''}",)
