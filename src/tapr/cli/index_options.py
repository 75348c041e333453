"""Options of an index run on the command line, made from the fields of tapr/index/options.py."""

from __future__ import annotations

from collections.abc import Callable

from tapr.cli.model_options import Command, model_options
from tapr.index.options import IndexOptions

# tapr index has an argument for the images; drop and move are those of tapr sources; wait is shared with other commands
_BY_ITSELF = ("images", "drop", "move", "wait")
_NAMES = {"columns": ("--column", "columns")}
_METAVARS = {"columns": "NAME=TYPE", "device": "NAMES", "drop": "SOURCE", "move": "OLD NEW"}


def index_options(*names: str) -> Callable[[Command], Command]:
    """Add these options to a command, or all that `tapr index` has."""
    wanted = names or [name for name in IndexOptions.model_fields if name not in _BY_ITSELF]
    return model_options(IndexOptions, wanted, declared=_NAMES, metavars=_METAVARS)
