"""Why a picture was found: each term's share of the score, and where in the picture its evidence lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import EncoderCard
from tapr.explain.calibration import Scale
from tapr.gallery import Gallery
from tapr.images.frame import Frame
from tapr.query.factors import BY_NAME, Factor
from tapr.score.compile import CompiledQuery, Term
from tapr.score.definition import heat_maps

_MAX_OPACITY = 215  # of 255: the picture stays visible under the strongest evidence


@dataclass(frozen=True, eq=False)
class Heat:
    """Where one term finds its evidence in one picture: w_i p_ij s_ij over the grid, its sum the contribution."""

    term: Term
    values: NDArray[np.float64]  # (rows, columns)
    cosines: NDArray[np.float64] | None = None  # (rows, columns) of a phrase with each place; None for pictures

    @property
    def scale(self) -> tuple[Factor, bool]:
        """What it shares a colour scale with: maps of its factor, marked pictures apart from words."""
        return self.term.factor, self.term.feedback


def heat_of(query: CompiledQuery, gallery: Gallery, position: int) -> list[Heat]:
    """The maps of every term that reads local vectors, for the picture at a gallery position."""
    block = gallery.gather(gallery.rows[[position]])
    return heat_on(query, block.decoded()[0], gallery.card)


def heat_on(query: CompiledQuery, local_vectors: NDArray[Any], card: EncoderCard) -> list[Heat]:
    """The same for a picture by its local vectors. (M, d)"""
    maps = heat_maps(query, local_vectors).reshape(-1, *card.grid)
    cosines = (query.probes.astype(np.float64) @ local_vectors.astype(np.float64).T).reshape(-1, *card.grid)
    return [
        Heat(term, values, cosines[term.start] if term.from_words else None)
        for term, values in zip(query.terms, maps, strict=True)
        if term.reads == "local"
    ]


def combined(heats: Sequence[Heat]) -> NDArray[np.float64]:
    """The signed sum over all terms: what speaks for the picture and what against, place by place."""
    return np.asarray(np.sum([heat.values for heat in heats], axis=0))


def strongest(heats: Sequence[Heat]) -> dict[tuple[Factor, bool], float]:
    """The top of the colour scale of each `Heat.scale`: its largest cell over all the given maps."""
    tops: dict[tuple[Factor, bool], float] = {}
    for heat in heats:
        tops[heat.scale] = max(tops.get(heat.scale, 0.0), float(np.abs(heat.values).max()))
    return tops


def overlay(
    heat: Heat, scale: Scale, top: float, size: tuple[int, int], card: EncoderCard, *, is_found: bool
) -> Image.Image:
    """One term's map: a phrase on the gallery's scale, with a line around it if it is found; the reference on its own.

    `top` is the strongest cell of the reference's parts, over what stands side by side.
    """
    colour = BY_NAME[heat.term.factor].colour
    if heat.cosines is None:
        return Image.alpha_composite(unseen(size, card), render(heat.values, top, colour, size, card))
    strength = scale.strength(heat.cosines)
    image = Image.alpha_composite(unseen(size, card), render(strength, 1.0, colour, size, card))
    return ringed(image, strength, size, card) if is_found and strength.max() > 0 else image


def ringed(image: Image.Image, strength: NDArray[np.float64], size: tuple[int, int], card: EncoderCard) -> Image.Image:
    """With a line, light in dark, around the places that are at least half as strong as the strongest.

    It is smooth: it follows no single cell, because cells are mixed with their neighbours, and it is drawn by how far a
    point is from the border. It ends where the picture ends for the encoder.
    """
    left, upper, right, lower = (round(edge) for edge in Frame(card.image_size, card.fit).box(*size))
    mixed = _mixed(_mixed(strength).T).T.astype(np.float32)
    inside = Image.fromarray(mixed).resize((max(1, right - left), max(1, lower - upper)), Image.Resampling.BICUBIC)
    height = np.asarray(inside, np.float64) - mixed.max() / 2
    slope = np.hypot(*np.gradient(height)) if min(height.shape) > 1 else np.zeros_like(height)
    distance = np.abs(height) / np.maximum(slope, 1e-9)  # in pixels, from the border
    width = max(1.0, max(size) / 300)  # half of the light line
    for colour, half in (((20, 24, 32), 2 * width), ((255, 255, 255), width)):
        line = np.clip(half + 0.5 - distance, 0, 1)
        image.paste((*colour, 255), (left, upper), Image.fromarray((255 * line).round().astype(np.uint8)))
    return image


def _mixed(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row with its neighbours, a quarter each; the first and the last are their own neighbours."""
    wide = np.pad(cells, ((1, 1), (0, 0)), mode="edge")
    return np.asarray((wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4)


def unseen(size: tuple[int, int], card: EncoderCard) -> Image.Image:
    """A grey veil over the edges that the encoder does not look at: it sees the middle square of a cropped picture."""
    veil = Image.new("RGBA", size, (110, 116, 128, 150))
    left, upper, right, lower = Frame(card.image_size, card.fit).box(*size)
    veil.paste((0, 0, 0, 0), (round(left), round(upper), round(right), round(lower)))
    return veil


def render(
    values: NDArray[np.float64], top: float, colour: tuple[int, int, int], size: tuple[int, int], card: EncoderCard
) -> Image.Image:
    """A see-through overlay in picture coordinates: cells interpolated, the tower's crop or padding undone.

    `size` is the overlay's width and height, in the picture's own proportions; cells at `top` are the most opaque.
    """
    strength = np.clip(np.abs(values) / top if top > 0 else np.zeros_like(values), 0, 1)
    cells = Image.fromarray((strength * _MAX_OPACITY).round().astype(np.uint8))
    left, upper, right, lower = Frame(card.image_size, card.fit).box(*size)
    seen = max(1, round(right - left)), max(1, round(lower - upper))
    smooth = cells.resize(seen, Image.Resampling.BICUBIC)
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
