"""tapr: composed image retrieval. A picture and a sentence in, a ranked gallery and its reasons out."""

from tapr.captions.describe import describe
from tapr.captions.description import Description
from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.query.factors import FACTORS
from tapr.query.spec import EditSpec, Weights
from tapr.result import Contribution, Hit, Ranking
from tapr.score.compile import CompiledQuery, compile_query
from tapr.score.definition import late_interaction
from tapr.search.pipeline import search

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
    "TaprError",
    "Weights",
    "compile_query",
    "describe",
    "late_interaction",
    "search",
]
