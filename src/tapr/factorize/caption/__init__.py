"""A caption with an edit applied: words alone, no picture, no model."""

from __future__ import annotations

from tapr.factorize.caption.edited import Edited
from tapr.factorize.caption.editor import Editor
from tapr.factorize.caption.parse import parse
from tapr.factorize.grammar.reading import Reading

__all__ = ["Edited", "edit_caption"]


def edit_caption(caption: str, reading: Reading, *, sure: bool = True, about: str = "") -> Edited:
    """Edit the caption, and return what came, went and stayed. `about`: what the picture is of.

    Of a caption that is not sure, less is believed: where the edit names the thing itself, nothing but that.
    """
    return Editor(parse(caption), reading, sure=sure, about=about).run()
