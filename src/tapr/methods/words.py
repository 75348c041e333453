"""Word lists of our own, for systems whose authors use lists of things and of styles."""

from __future__ import annotations

from functools import cache
from itertools import product

from tapr.factorize.tags import vocabulary

_MEDIA = (
    "oil painting", "watercolour painting", "pencil drawing", "ink drawing", "charcoal sketch", "cartoon", "comic",
    "cross-stitch", "mosaic", "sculpture", "origami", "toy", "tattoo", "graffiti", "poster", "stamp", "engraving",
    "photograph", "black and white photograph", "old photograph", "close-up", "3D rendering", "silhouette", "neon sign",
)  # fmt: skip
_MANNERS = (
    "", "at night", "in the snow", "in the rain", "in fog", "at sunset", "in autumn", "from above", "from below",
    "in bright colours", "in dark colours", "in the style of pop art", "in the style of impressionism", "minimalist",
)  # fmt: skip


@cache
def things() -> tuple[str, ...]:
    """Return the names of visible things from the factorizer's vocabulary, each once."""
    return tuple(dict.fromkeys(vocabulary().things))


@cache
def styles() -> tuple[str, ...]:
    """Return media, manners, and every medium in every manner."""
    return tuple(f"{medium} {manner}".strip() for medium, manner in product(_MEDIA, _MANNERS))
