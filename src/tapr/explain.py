"""Why a picture was found: each term's share of the score, and where in the picture its evidence lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import EncoderCard
from tapr.encoders.frame import Frame
from tapr.gallery import Gallery
from tapr.score.compile import CompiledQuery, Term
from tapr.score.definition import heat_maps
from tapr.score.factors import BY_NAME, Factor

_MOST_OPAQUE = 215  # of 255: the picture stays visible under the strongest evidence


@dataclass(frozen=True, eq=False)
class Heat:
    """Where one term finds its evidence in one picture: w_i p_ij s_ij over the grid, its sum the contribution."""

    term: Term
    values: NDArray[np.float64]  # (rows, columns)


def heat_of(query: CompiledQuery, gallery: Gallery, position: int) -> list[Heat]:
    """The maps of every term that reads local vectors, for the picture at a gallery position."""
    block = gallery.gather(gallery.rows[[position]])
    return heat_on(query, block.decoded()[0], gallery.card)


def heat_on(query: CompiledQuery, local_vectors: NDArray[Any], card: EncoderCard) -> list[Heat]:
    """The same for a picture by its local vectors. (M, d)"""
    maps = heat_maps(query, local_vectors).reshape(-1, *card.grid)
    return [Heat(term, values) for term, values in zip(query.terms, maps, strict=True) if term.reads == "local"]


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
    good = render(np.clip(values, 0, None), top, BY_NAME["add"].colour, size, card)
    bad = render(np.clip(values, None, 0), top, BY_NAME["remove"].colour, size, card)
    return Image.alpha_composite(good, bad)
