"""tapr: composed image retrieval. A picture and a sentence in, a ranked gallery and its reasons out."""

from tapr.describe import Description, describe
from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.ranking import Hit, Ranking
from tapr.search import search
from tapr.spec import EditSpec, Weights

__version__ = "0.1.0"
__all__ = [
    "BadInput",
    "Description",
    "EditSpec",
    "Gallery",
    "Hit",
    "Ranking",
    "TaprError",
    "Weights",
    "describe",
    "search",
]
