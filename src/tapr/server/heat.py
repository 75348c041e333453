"""Heat maps on demand: an atom's evidence over a gallery picture, or over the reference itself."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from tapr.errors import BadInput
from tapr.explain import heatmap as explain
from tapr.explain.calibration import Pictures, Scale, words_of
from tapr.images.decode import BadImage, small
from tapr.query.factors import Factor
from tapr.query.reference import Reference
from tapr.score.compile import CompiledQuery, Term
from tapr.server.engine import Engine, UnknownPicture
from tapr.server.thumbnails import thumbnail

COMBINED = ""  # the name of the signed sum over all terms


def heat_picture(
    engine: Engine,
    references: Sequence[Reference],
    query: CompiledQuery,
    *,
    number: int = 1,
    picture_id: str | None,
    atom: str,
    factor: Factor | None = None,
    size: int,
    overlay: bool,
) -> Image.Image:
    """The map alone, see-through, or laid over the picture. Without a picture's id: over reference `number`.

    Atoms have one scale for the whole gallery (explain/calibration.py). The parts of the reference have one for the
    picture and the reference: what stands side by side can be compared.
    """
    card = engine.encoder.card
    owns = [explain.heat_on(query, one.evidence.local_vectors[0], card) for one in references]
    if picture_id is None:
        if number > len(references):
            raise BadInput(f"there is no reference {number}: the search has {len(references)}")
        heats, image = owns[number - 1], small(references[number - 1].image, size)
        evidence = references[number - 1].evidence
        seen = Pictures(evidence.global_vectors, evidence.local_vectors)
    else:
        gallery = engine.gallery
        entry = engine.entry(picture_id, gallery)
        heats = explain.heat_of(query, gallery, gallery.position_of(picture_id))
        seen = Pictures.of(gallery, [picture_id])
        try:
            image = thumbnail(engine.picture_bytes(entry), size)
        except BadImage as error:
            raise UnknownPicture(f"the file of {picture_id!r} {error}") from None
    shown = _enlarged(image.size, size) if overlay else image.size
    if atom == COMBINED and factor is None:
        heat = explain.render_signed(explain.combined(heats), shown, card)
    else:
        found = next((heat for heat in heats if _names(heat.term, factor, atom)), None)
        if found is None and factor == "continuity":
            raise BadInput("the overall look has no place: use the reference features local, or both")
        if found is None:
            raise BadInput(f"the spec has no atom {atom[:160]!r}: name one of it, or none for all together")
        top = explain.strongest([*heats, *(heat for own in owns for heat in own)]).get(found.scale, 0.0)
        # what an edit adds is what the reference does not have: whatever its words resemble there gets no outline
        may_show = found.cosines is not None and (picture_id is not None or found.term.factor != "add")
        told = words_of([found.term.text], seen, engine.encoder, engine.gallery) if may_show else [[None]]
        is_found = told[0][0] == "found"
        heat = explain.overlay(found, Scale.of(engine.gallery), top, shown, card, is_found=is_found)
    return heat if overlay else Image.alpha_composite(image.convert("RGBA"), heat).convert("RGB")


def _enlarged(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """An overlay is as sharp as was asked for, also over a small picture."""
    scale = longest / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _names(term: Term, factor: Factor | None, atom: str) -> bool:
    """Continuity is named by its factor, and of several references by its text too: an atom may have any text."""
    if factor == "continuity" or term.factor == "continuity":
        return term.factor == factor and atom in (COMBINED, term.text)
    return term.text == atom and factor in (None, term.factor)
