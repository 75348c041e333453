"""A client of a tapr server: `Client` for programs that wait, `AsyncClient` for asyncio. Needs the extra `client`.

    from tapr.client import Client

    with Client("http://127.0.0.1:8765", token="...") as client:
        found = client.search("reference.jpg", "the same, but red", k=5)
        print([hit.id for hit in found.hits])

It is built on httpx, which has both ways of asking behind one interface, keeps connections and bounds times. What is
asked and how answers are read (calls.py) knows nothing of httpx, so both clients share it. The options of a
search are those of tapr/options.py, and its answer is that of the library (tapr/result.py), without paths of files.
"""

from tapr.client.clients import AsyncClient, Client
from tapr.client.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    NotAPicture,
    NotFound,
    TooLarge,
    TooOften,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from tapr.result import Contribution, Hit, ReferenceInfo, SearchResult
from tapr.server.schemas import BatchResult, Gallery, Listed, Picture, SavedSearch
from tapr.store.write_operations import WriteResult
from tapr.utils.retry import RetryPolicy

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadRequest",
    "BatchResult",
    "Client",
    "Conflict",
    "Contribution",
    "Forbidden",
    "Gallery",
    "Hit",
    "Listed",
    "NotAPicture",
    "NotFound",
    "Picture",
    "ReferenceInfo",
    "RetryPolicy",
    "SavedSearch",
    "SearchResult",
    "TooLarge",
    "TooOften",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "WriteResult",
]
