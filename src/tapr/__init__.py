"""tapr: composed image retrieval. A picture and a sentence in, a ranked gallery and its reasons out."""

from typing import TYPE_CHECKING

from tapr.describe import Description, describe
from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.ranking import Hit, Ranking
from tapr.score.compile import compile_query
from tapr.score.factors import FACTORS
from tapr.search import search
from tapr.spec import EditSpec, Weights

if TYPE_CHECKING:
    from tapr.score.definition import score  # a module cannot say that it is callable
else:
    from tapr import score  # the package, which is called like the function

__version__ = "0.2.0.dev0"  # the only place: pyproject.toml reads it
__all__ = [
    "FACTORS",
    "BadInput",
    "Description",
    "EditSpec",
    "Gallery",
    "Hit",
    "Ranking",
    "TaprError",
    "Weights",
    "compile_query",
    "describe",
    "score",
    "search",
]
