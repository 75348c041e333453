"""tapr: composed image retrieval. A picture and a sentence in, a ranked gallery and its reasons out.

The public names are imported when they are first used, so that a command loads only what it needs.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapr.captions.describe import describe
    from tapr.captions.description import Description
    from tapr.errors import BadInput, TaprError
    from tapr.gallery import Gallery
    from tapr.query.factors import FACTORS
    from tapr.query.spec import EditSpec, Weights
    from tapr.result import Contribution, Hit, Ranking
    from tapr.score.compile import CompiledQuery, compile_query
    from tapr.score.definition import late_interaction
    from tapr.search.saved import SavedSearches
    from tapr.search.searcher import Searcher, search

__version__ = "0.2.0.dev0"  # the only place: pyproject.toml reads it
__all__ = [
    "FACTORS",
    "BadInput",
    "CompiledQuery",
    "Contribution",
    "Description",
    "EditSpec",
    "Gallery",
    "Hit",
    "Ranking",
    "SavedSearches",
    "Searcher",
    "TaprError",
    "Weights",
    "compile_query",
    "describe",
    "late_interaction",
    "search",
]
_HOMES = {
    "BadInput": "tapr.errors",
    "CompiledQuery": "tapr.score.compile",
    "Contribution": "tapr.result",
    "Description": "tapr.captions.description",
    "EditSpec": "tapr.query.spec",
    "FACTORS": "tapr.query.factors",
    "Gallery": "tapr.gallery",
    "Hit": "tapr.result",
    "Ranking": "tapr.result",
    "SavedSearches": "tapr.search.saved",
    "Searcher": "tapr.search.searcher",
    "TaprError": "tapr.errors",
    "Weights": "tapr.query.spec",
    "compile_query": "tapr.score.compile",
    "describe": "tapr.captions.describe",
    "late_interaction": "tapr.score.definition",
    "search": "tapr.search.searcher",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


class _Package(ModuleType):
    """`tapr.search` is the function, though there is a package of that name: importing it does not take its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
