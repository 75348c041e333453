"""Splits the arguments and results of Ray calls into chunks below 100 KB.

Ray sends smaller objects with the call itself, in about 1 ms. Larger ones are copied between the nodes' object stores,
which takes about 10 ms. A query has about 110 KB, the vectors of ten hits 500 KB.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 90_000  # bytes
_MAX_CHUNKS = 64  # chunks per call or answer; larger objects go to the object store


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments of an actor's method, and the approximate size of its answer."""

    arguments: tuple[Any, ...]
    answer_bytes: int = 0
    shared: Any = None  # one more argument that is in the object store already and shared by many calls

    @property
    def returns(self) -> int:
        return chunk_count(self.answer_bytes)


def chunk_count(size: int) -> int:
    count = -(-size // CHUNK_BYTES)
    return max(1, count) if count <= _MAX_CHUNKS else 1


def cut(value: object, count: int | None = None) -> list[bytes]:
    """Pickle a value into this many chunks; by default as its size requires."""
    data = pickle.dumps(value, protocol=5)
    count = count or chunk_count(len(data))
    step = -(-len(data) // count)
    return [data[i * step : (i + 1) * step] for i in range(count)]


def join(pieces: Sequence[bytes]) -> Any:
    return pickle.loads(b"".join(pieces))
