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
    """A marked picture."""

    factor: WordFactor  # what it is evidence of: preserve or remove
    name: str  # what the answer calls it
    picture: Reference

    def compiled(self, card: EncoderCard) -> Feedback:
        return Feedback(self.factor, self.name, kept_evidence(self.picture, card))


def feedback_of(more_like: Sequence[Reference], not_like: Sequence[Reference], gallery: Gallery) -> list[Marked]:
    """Name each marked picture by its gallery id, or by its number where the gallery does not have it."""
    for picture in not_like:
        if any((picture.sha256, picture.crop) == (other.sha256, other.crop) for other in more_like):
            what = f"{_name(picture, 1, gallery)} is marked more_like and not_like: leave it out of one of them"
            raise BadOption(what, "not_like", "conflicting_options")
    lists: list[tuple[WordFactor, Sequence[Reference]]] = [("preserve", more_like), ("remove", not_like)]
    return [
        Marked(factor, _name(picture, number, gallery), picture)
        for factor, pictures in lists
        for number, picture in enumerate(pictures, 1)
    ]


def _name(picture: Reference, number: int, gallery: Gallery) -> str:
    if picture.id is not None:
        return picture.id
    known = gallery.positions_of(picture.sha256)[:1].tolist()
    return gallery.entries(known)[0].id if known else f"picture {number}"


def notes_of_marks(marked: Sequence[Marked], *, left_out: bool) -> tuple[str, ...]:
    """Return the note that says which marks count."""
    if not marked:
        return ()
    lists = []
    for words, factor in (("more like", "preserve"), ("not like", "remove")):
        names = [picture.name for picture in marked if picture.factor == factor]
        lists += [f"{words} {', '.join(names)}"] if names else []
    return (f"your marks count: {'; '.join(lists)}{' (left out of the answer)' if left_out else ''}",)
