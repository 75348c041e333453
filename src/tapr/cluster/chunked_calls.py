"""Calls in pieces. Ray sends arguments and answers below 100 KB with the call itself, in about a millisecond.

What is larger goes from one node's object store to another's, which takes ten. A query has about 110 KB, the vectors of
ten hits 500.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 90_000  # bytes
_MAX_CHUNKS = 64  # pieces of one call or answer; what is larger is better off in the object store


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments of an actor's method, and about how large its answer is."""

    arguments: tuple[Any, ...]
    answer_bytes: int = 0
    shared: Any = None  # a further argument that lies in the object store already, for many calls

    @property
    def returns(self) -> int:
        return chunk_count(self.answer_bytes)


def chunk_count(size: int) -> int:
    count = -(-size // CHUNK_BYTES)
    return max(1, count) if count <= _MAX_CHUNKS else 1


def cut(value: object, count: int | None = None) -> list[bytes]:
    """Into so many pieces; by default as many as its size asks for."""
    data = pickle.dumps(value, protocol=5)
    count = count or chunk_count(len(data))
    step = -(-len(data) // count)
    return [data[i * step : (i + 1) * step] for i in range(count)]


def join(pieces: Sequence[bytes]) -> Any:
    return pickle.loads(b"".join(pieces))
