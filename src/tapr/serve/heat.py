"""Heat maps on demand: an atom's evidence over a gallery picture, or over the reference itself."""

from __future__ import annotations

from PIL import Image

from tapr import explain
from tapr.errors import BadInput
from tapr.factorize.base import Reference
from tapr.images import BadImage, decode
from tapr.match.reference import heat_maps
from tapr.query import CompiledQuery
from tapr.serve.engine import Engine, UnknownPicture
from tapr.serve.thumbnails import small

COMBINED = ""  # the name of the signed sum over all terms


def heat_picture(
    engine: Engine,
    reference: Reference,
    query: CompiledQuery,
    *,
    picture_id: str | None,
    atom: str,
    size: int,
    overlay: bool,
) -> Image.Image:
    """The map alone, see-through, or laid over the picture. Without a picture's id: over the reference.

    A factor has one colour scale for the picture and the reference: what stands side by side can be compared.
    """
    card = engine.encoder.card
    own = _heats(query, reference, engine)
    if picture_id is None:
        heats, image = own, small(reference.image, size)
    else:
        gallery = engine.gallery
        entry = engine.entry(picture_id, gallery)
        heats = explain.heat_of(query, gallery, gallery.position_of(picture_id))
        try:
            image = small(decode(engine.picture_bytes(entry), side=size), size)
        except BadImage as error:
            raise UnknownPicture(f"the file of {picture_id!r} {error}") from None
    if atom == COMBINED:
        heat = explain.render_signed(explain.combined(heats), image.size, card)
    else:
        found = next((heat for heat in heats if heat.term.text == atom), None)
        if found is None:
            raise BadInput(f"the spec has no atom {atom[:160]!r}: name one of it, or none for all together")
        factor = found.term.factor
        top = explain.strongest([*heats, *own]).get(factor, 0.0)
        heat = explain.render(found.values, top, explain.FACTOR_COLOURS[factor], image.size, card)
    return heat if overlay else Image.alpha_composite(image.convert("RGBA"), heat).convert("RGB")


def _heats(query: CompiledQuery, reference: Reference, engine: Engine) -> list[explain.Heat]:
    maps = heat_maps(query, reference.evidence.local_vectors[0]).reshape(-1, *engine.encoder.card.grid)
    return [
        explain.Heat(term, values) for term, values in zip(query.terms, maps, strict=True) if term.factor != "target"
    ]
