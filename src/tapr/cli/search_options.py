"""Options of a search on the command line, made from the fields of tapr/options.py and their traits."""

from __future__ import annotations

from collections.abc import Callable

from tapr.cli.model_options import Command, model_options
from tapr.options import TRAITS, SearchOptions


def search_options(*names: str) -> Callable[[Command], Command]:
    """Add these options to a command, or all for which it has no words of its own."""
    wanted = names or [name for name, traits in TRAITS.items() if traits.flags != ()]
    declared = {name: traits.flags for name, traits in TRAITS.items() if traits.flags}
    metavars = {name: traits.metavar for name, traits in TRAITS.items() if traits.metavar}
    return model_options(SearchOptions, wanted, declared=declared, metavars=metavars)
