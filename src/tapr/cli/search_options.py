"""Options of a search on the command line, made from the fields of tapr/options.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import click
from annotated_types import Ge

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


def search_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds these options to a command, or all. One that was not given is None, so that a search knows which were."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names or [name for name in SearchOptions.model_fields if name not in _BY_ITSELF]):
            command = _option(name)(command)
        return command

    return add


def _option(name: str) -> Callable[..., Any]:
    field = SearchOptions.model_fields[name]
    declared = _NAMES.get(name, (f"--{name.replace('_', '-')}",))
    said: dict[str, Any] = {"help": field.description, "default": None, "metavar": _METAVARS.get(name)}
    if field.default not in (None, ()) and not isinstance(field.default, bool):
        said["show_default"] = str(field.default)
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        said["type"] = click.Choice(kinds)
    elif kinds == [int]:
        least: Any = next(one.ge for one in field.metadata if isinstance(one, Ge))
        said["type"] = click.IntRange(min=least)
    elif kinds == [float]:
        said["type"] = float
    elif name in PICTURE_LISTS:
        said |= {"multiple": True, "default": ()}
    return click.option(*declared, **said)
