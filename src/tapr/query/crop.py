"""A part of a reference: a rectangle, and the local vectors that lie inside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard, Evidence
from tapr.errors import BadOption
from tapr.images.frame import Frame
from tapr.query.reference import Reference
from tapr.types import Box


def checked_box(value: Any) -> Box:
    """Left, top, right, bottom as parts of the picture's width and height, 0 to 1; also as text: 0.2,0,0.8,0.5"""
    try:
        left, top, right, bottom = (float(edge) for edge in (value.split(",") if isinstance(value, str) else value))
    except (TypeError, ValueError):
        what = "a crop is four numbers from 0 to 1: left, top, right, bottom, such as 0.2,0,0.8,0.5"
        raise BadOption(what, "crop") from None
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise BadOption(
            f"the crop {left:g},{top:g},{right:g},{bottom:g} is no part of a picture: left and top come before right "
            "and bottom, all from 0 to 1",
            "crop",
        )
    return left, top, right, bottom


def cropped(reference: Reference, box: Box | Sequence[float] | None) -> Reference:
    """The reference, of which only this part counts; None: all of it."""
    return reference if box is None else replace(reference, crop=checked_box(box))


def cells_inside(box: Box, size: tuple[int, int], card: EncoderCard) -> NDArray[np.bool_]:
    """(M,): the cells of the grid whose middle lies inside; of a smaller rectangle, the cell that holds its middle."""
    width, height = size
    left, top, right, bottom = Frame(card.image_size, card.fit).box(width, height)
    rows, columns = card.grid
    y = (top + (np.arange(rows) + 0.5) / rows * (bottom - top)) / height
    x = (left + (np.arange(columns) + 0.5) / columns * (right - left)) / width
    inside: NDArray[np.bool_] = ((y >= box[1]) & (y <= box[3]))[:, None] & ((x >= box[0]) & (x <= box[2]))[None, :]
    if not inside.any():
        middle_x, middle_y = (box[0] + box[2]) / 2 * width, (box[1] + box[3]) / 2 * height
        if not (left <= middle_x <= right and top <= middle_y <= bottom):
            raise BadOption(
                "the encoder does not look at that part of the picture: it sees the middle square, choose a part of it",
                "crop",
            )
        row = min(rows - 1, int((middle_y - top) / (bottom - top) * rows))
        column = min(columns - 1, int((middle_x - left) / (right - left) * columns))
        inside[row, column] = True
    return inside.reshape(-1)


def kept_evidence(reference: Reference, card: EncoderCard) -> Evidence:
    """What a query keeps of a reference: everything, or the local vectors inside its crop and no global vector."""
    if reference.crop is None:
        return reference.evidence
    inside = cells_inside(reference.crop, reference.image.size, card)
    return Evidence(reference.evidence.global_vectors[:0], reference.evidence.local_vectors[:, inside])


def notes_of_references(references: Sequence[Reference], card: EncoderCard, *, words: bool) -> tuple[str, ...]:
    """Return notes on chosen parts and on several references; `words`: whether there are some beside them."""
    notes = []
    if len(references) > 1:
        read = "; your words apply to all" if words else ""
        notes.append(f"{len(references)} references: pictures count equally{read}")
    for number, reference in enumerate(references, 1):
        if reference.crop is not None:
            count = int(cells_inside(reference.crop, reference.image.size, card).sum())
            which = f"picture {number}" if len(references) > 1 else "the reference"
            notes.append(f"of {which} only the chosen part counts: {count} of {card.locals_count} places")
    return tuple(notes)
