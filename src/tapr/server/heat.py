"""Heat maps on demand: where in a picture the terms of a question find their evidence."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from tapr.errors import BadInput, BadOption
from tapr.explain import heatmap as explain
from tapr.explain.calibration import Pictures, Scale, words_of
from tapr.images.decode import BadImage, small
from tapr.search.answer import Question
from tapr.server.pictures import ServedPictures, UnknownPicture
from tapr.server.thumbnails import thumbnail

COMBINED = ""  # the id of the signed sum over all terms


@dataclass(frozen=True, eq=False)
class _Place:
    """A picture that a map is drawn over."""

    image: Image.Image
    heats: list[explain.Heat]
    evidence: Pictures
    is_reference: bool


def heat_picture(
    question: Question,
    pictures: ServedPictures,
    *,
    picture_id: str | None,
    number: int,
    term: str,
    size: int,
    overlay: bool,
) -> Image.Image:
    """Draw the map alone, see-through, or over the picture. Without a picture's id: over reference `number`.

    Atoms have one scale for the whole gallery (explain/calibration.py). The parts of the reference have one for the
    picture and the reference: pictures that stand side by side can be compared.
    """
    place = _reference(question, number, size) if picture_id is None else _found(question, pictures, picture_id, size)
    if not place.heats:
        raise BadOption("no term of this question has a place in a picture: ask for no heat map", "question")
    card = question.encoder.card
    shape = _enlarged(place.image.size, size) if overlay else place.image.size
    if term == COMBINED:
        heat = explain.render_signed(explain.combined(place.heats), shape, card)
    else:
        heat = _term_map(question, pictures, place, term, shape)
    return heat if overlay else Image.alpha_composite(place.image.convert("RGBA"), heat).convert("RGB")


def _reference(question: Question, number: int, size: int) -> _Place:
    if number > len(question.references):
        raise BadInput(f"there is no reference {number}: the search has {len(question.references)}")
    reference = question.references[number - 1]
    heats = _heats_of_references(question)[number - 1]
    evidence = Pictures(reference.evidence.global_vectors, reference.evidence.local_vectors)
    return _Place(small(reference.image, size), heats, evidence, is_reference=True)


def _found(question: Question, pictures: ServedPictures, id_: str, size: int) -> _Place:
    gallery, entry = pictures.gallery, pictures.entry(id_)
    try:
        image = thumbnail(pictures.bytes_of(entry), size)
    except BadImage as error:
        raise UnknownPicture(f"the file of {id_!r} {error}") from None
    heats = explain.heat_of(question.query, gallery, gallery.position_of(id_))
    return _Place(image, heats, Pictures.of(gallery, [id_]), is_reference=False)


def _heats_of_references(question: Question) -> list[list[explain.Heat]]:
    card = question.encoder.card
    return [
        explain.heat_on(question.query, reference.evidence.local_vectors[0], card) for reference in question.references
    ]


def _term_map(
    question: Question, pictures: ServedPictures, place: _Place, term: str, shape: tuple[int, int]
) -> Image.Image:
    heat = next((heat for heat in place.heats if heat.term.id == term), None)
    if heat is None:
        known = any(known.id == term for known in question.query.terms)
        what = "is compared as a whole: it has no place in a picture" if known else "is not in the question"
        raise BadOption(f"the term {term[:160]!r} {what}", "term")
    beside = [other for heats in _heats_of_references(question) for other in heats]
    top = explain.strongest([*place.heats, *beside]).get(heat.scale, 0.0)
    # an edit adds what the reference does not have: whatever the words of Add resemble there gets no outline
    is_found = False
    if heat.cosines is not None and not (place.is_reference and heat.term.factor == "add"):
        (marks,) = words_of([heat.term.text], place.evidence, question.encoder, pictures.gallery)
        is_found = marks[0] == "found"
    scale = Scale.of(pictures.gallery)
    return explain.overlay(heat, scale, top, shape, question.encoder.card, is_found=is_found)


def _enlarged(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """Return the size of an overlay: as sharp as was asked for, also over a small picture."""
    scale = longest / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
