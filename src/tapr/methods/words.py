"""Word lists of our own, for systems whose authors use lists of things and of styles."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from itertools import product

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
    """Names of visible things, from the factorizer's vocabulary."""
    known = json.loads(files("tapr.factorize").joinpath("data/vocabulary.json").read_text(encoding="utf-8"))["things"]
    return tuple(dict.fromkeys(word for words in known.values() for word in words))


@cache
def styles() -> tuple[str, ...]:
    """Media and manners, and both together."""
    return tuple(f"{medium} {manner}".strip() for medium, manner in product(_MEDIA, _MANNERS))
