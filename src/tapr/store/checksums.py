"""Checksums detect damage to a gallery's files.

Each shard file is summed in chunks of whole rows, about a megabyte each, while it is written. The sums are stored in
the catalogue and committed with the rows. Appending extends the last chunk and adds new ones; older chunks are not read
again. The manifest holds the checksum of the catalogue, which is never changed after it is published.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

CHUNK_BYTES = 2**20


class FileDigest(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileDigest:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return cls(bytes=file.tell(), sha256=digest.hexdigest())


@dataclass(frozen=True)
class Checksum:
    """The checksum of some rows of a shard file."""

    kind: str
    shard: int
    start: int  # first row, counted in the shard
    rows: int
    sha256: str

    def holds_for(self, rows: NDArray[Any]) -> bool:
        return sum_of(rows) == self.sha256


def sum_of(rows: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


class RunningSum:
    """The checksums of one shard file while rows are appended to it."""

    def __init__(self, kind: str, shard: int, row_bytes: int, start: int, begun: NDArray[Any] | None) -> None:
        """`start`: first row of the last chunk. `begun`: the rows it already has."""
        self._kind, self._shard, self._start = kind, shard, start
        self._chunk_rows = chunk_rows(row_bytes)
        self._rows, self._hash = 0, hashlib.sha256()
        self._new: list[Checksum] = []
        if begun is not None:
            self.add(begun)

    def add(self, rows: NDArray[Any]) -> None:
        done = 0
        while done < len(rows):
            if self._rows >= self._chunk_rows:
                self._new.append(self._sum())
                self._start, self._rows, self._hash = self._start + self._rows, 0, hashlib.sha256()
            step = min(self._chunk_rows - self._rows, len(rows) - done)
            self._hash.update(np.ascontiguousarray(rows[done : done + step]).tobytes())
            self._rows += step
            done += step

    def take(self) -> list[Checksum]:
        """Checksums that are new or changed since the last call."""
        new = [*self._new, self._sum()] if self._rows else self._new
        self._new = []
        return new

    def _sum(self) -> Checksum:
        return Checksum(self._kind, self._shard, self._start, self._rows, self._hash.copy().hexdigest())


def chunk_rows(row_bytes: int) -> int:
    return max(1, CHUNK_BYTES // row_bytes)
