"""Why a picture was found: each term's share of the score, and where in the picture its evidence lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import EncoderCard
from tapr.encoders.frame import Frame
from tapr.gallery import Gallery
from tapr.match.reference import heat_maps
from tapr.query import CompiledQuery, Term
from tapr.spec import Factor

# one colour a factor, told apart also by people who do not see red and green alike
FACTOR_COLOURS: dict[Factor, tuple[int, int, int]] = {
    "target": (86, 99, 120),
    "add": (0, 143, 122),
    "preserve": (44, 102, 214),
    "remove": (214, 72, 32),
}
_MOST_OPAQUE = 215  # of 255: the picture stays visible under the strongest evidence


@dataclass(frozen=True, eq=False)
class Heat:
    """Where one term finds its evidence in one picture: w_i p_ij s_ij over the grid, its sum the contribution."""

    term: Term
    values: NDArray[np.float64]  # (rows, columns)


def heat_of(query: CompiledQuery, gallery: Gallery, position: int) -> list[Heat]:
    """The maps of every term that reads local vectors, for the picture at a gallery position."""
    block = gallery.gather(gallery.rows[[position]])
    maps = heat_maps(query, block.decoded()[0]).reshape(-1, *gallery.card.grid)
    return [Heat(term, values) for term, values in zip(query.terms, maps, strict=True) if term.factor != "target"]


def combined(heats: Sequence[Heat]) -> NDArray[np.float64]:
    """The signed sum over all terms: what speaks for the picture and what against, place by place."""
    return np.asarray(np.sum([heat.values for heat in heats], axis=0))


def strongest(heats: Sequence[Heat]) -> dict[Factor, float]:
    """The top of one colour scale a factor: its largest cell over all the maps given."""
    tops: dict[Factor, float] = {}
    for heat in heats:
        tops[heat.term.factor] = max(tops.get(heat.term.factor, 0.0), float(np.abs(heat.values).max()))
    return tops


def render(
    values: NDArray[np.float64], top: float, colour: tuple[int, int, int], size: tuple[int, int], card: EncoderCard
) -> Image.Image:
    """A see-through overlay in picture coordinates: cells interpolated, the tower's crop or padding undone.

    `size` is the overlay's width and height, in the picture's own proportions; cells at `top` are the most opaque.
    """
    strength = np.clip(np.abs(values) / top if top > 0 else np.zeros_like(values), 0, 1)
    cells = Image.fromarray((strength * _MOST_OPAQUE).round().astype(np.uint8))
    left, upper, right, _ = Frame(card.image_size, card.fit).box(*size)
    side = max(1, round(right - left))
    smooth = cells.resize((side, side), Image.Resampling.BICUBIC)
    alpha = Image.new("L", size, 0)  # outside the crop the tower saw nothing
    alpha.paste(smooth, (round(left), round(upper)))
    overlay = Image.new("RGBA", size, (*colour, 0))
    overlay.putalpha(alpha)
    return overlay


def render_signed(values: NDArray[np.float64], size: tuple[int, int], card: EncoderCard) -> Image.Image:
    """The combined map: for in the colour of Add, against in the colour of Remove, one scale for both."""
    top = float(np.abs(values).max())
    good = render(np.clip(values, 0, None), top, FACTOR_COLOURS["add"], size, card)
    bad = render(np.clip(values, None, 0), top, FACTOR_COLOURS["remove"], size, card)
    return Image.alpha_composite(good, bad)
