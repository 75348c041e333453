"""Options of a search on the command line, made from the fields of tapr/options.py."""

from __future__ import annotations

from collections.abc import Callable

from tapr.cli.model_options import Command, model_options
from tapr.options import PICTURE_LISTS, SearchOptions

_BY_ITSELF = ("reference", "edit", "spec", "factorizer")  # tapr search has its own words for these
# where the name is not the field's own
_NAMES = {
    "k": ("-k",),
    "explain": ("--parts/--no-parts", "explain"),
    "exclude_reference": ("--exclude-reference/--keep-reference",),
    "more_references": ("--more-reference", "more_references"),
    "more_like": ("--more-like",),
    "not_like": ("--not-like",),
}
_METAVARS = {"crop": "L,T,R,B", "prefilter": "N|exact", "like": "PICTURE"} | dict.fromkeys(PICTURE_LISTS, "PICTURE")


def search_options(*names: str) -> Callable[[Command], Command]:
    """Add these options to a command, or all."""
    wanted = names or [name for name in SearchOptions.model_fields if name not in _BY_ITSELF]
    return model_options(SearchOptions, wanted, declared=_NAMES, metavars=_METAVARS)
