"""Staged parts: encoded pictures that are not in the catalogue yet. One file per part, with checksums.

The node that encodes a part writes it in one step. Finished parts survive the loss of a node or of the run, and the
next run reuses them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.cluster.files import Files
from tapr.encoders.base import Encoder
from tapr.encoders.wrapper import EncoderWrapper
from tapr.index.sources import Candidate
from tapr.store import layout
from tapr.store.catalog import Entry
from tapr.store.shards import StoredEvidence
from tapr.utils.lru import LRU

SUFFIX = ".part"
_DIGEST = 32  # bytes
_OPEN = 4  # parts whose vectors stay in memory


class Damaged(Exception):
    """A part whose checksum does not match."""


@dataclass(frozen=True)
class StagedPicture:
    """One picture of a part: its entry and the index of its vectors (None: it could not be decoded)."""

    entry: Entry
    place: int | None
    caption: str | None


@dataclass(frozen=True, eq=False)
class Part:
    seen: list[StagedPicture]
    arrays: dict[str, NDArray[Any]]  # by kind, in the format of the shard files

    def to_bytes(self) -> bytes:
        payload = b"".join(array.tobytes() for array in self.arrays.values())
        head = {
            "seen": [{**asdict(one), "entry": asdict(one.entry)} for one in self.seen],
            "arrays": {kind: [array.dtype.str, *array.shape] for kind, array in self.arrays.items()},
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text + payload

    @classmethod
    def from_bytes(cls, data: bytes) -> Part:
        head, place = _head(data)
        if hashlib.sha256(data[place:]).hexdigest() != head["sha256"]:
            raise Damaged
        arrays = {}
        for kind, (dtype, *shape) in head["arrays"].items():
            array = np.frombuffer(data, dtype, math.prod(shape), place).reshape(shape)
            arrays[kind], place = array, place + array.nbytes
        return cls(_seen(head), arrays)


def pictures_in(files: Files, name: str) -> list[StagedPicture]:
    """The pictures of a part. Vectors are checked when they are read."""
    begin = 8 + _DIGEST
    length = int.from_bytes(files.data(name, 0, begin)[:8].tobytes(), "little")
    return _seen(_head(files.data(name, 0, begin + length).tobytes())[0])


def _head(data: bytes) -> tuple[dict[str, Any], int]:
    begin = 8 + _DIGEST
    end = begin + int.from_bytes(data[:8], "little")
    if len(data) < end or hashlib.sha256(data[begin:end]).digest() != data[8:begin]:
        raise Damaged
    return json.loads(data[begin:end]), end


def _seen(head: dict[str, Any]) -> list[StagedPicture]:
    return [StagedPicture(Entry(**one["entry"]), one["place"], one["caption"]) for one in head["seen"]]


class StagedParts:
    """All finished parts, and an index of their pictures."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._places: dict[tuple[str, int, int], tuple[str, int]] = {}  # (path, size, mtime) -> (part, index in it)
        self._seen: dict[str, list[StagedPicture]] = {}
        self._open: LRU[str, Part] = LRU(_OPEN)
        for name in files.names():
            if name.endswith(SUFFIX):
                self.add(name)

    def add(self, name: str) -> None:
        """Add a finished part. A damaged one is deleted."""
        try:
            self._seen[name] = pictures_in(self._files, name)
        except (Damaged, ValueError, KeyError, TypeError, OSError):
            self._files.remove(name)
            return
        for number, one in enumerate(self._seen[name]):
            self._places[one.entry.path, one.entry.size, one.entry.mtime_ns] = name, number

    def find(self, path: str, size: int, mtime_ns: int) -> tuple[str, int] | None:
        return self._places.get((path, size, mtime_ns))

    def seen(self, place: tuple[str, int]) -> StagedPicture:
        return self._seen[place[0]][place[1]]

    def candidates(self, name: str) -> tuple[Candidate, ...]:
        """The pictures of a part, to encode it again."""
        entries = (one.entry for one in self._seen[name])
        return tuple(Candidate(entry.id, entry.path, entry.metadata, entry.source or "") for entry in entries)

    def part(self, name: str) -> Part:
        return self._open.get_or_make(name, lambda: Part.from_bytes(self._files.read(name)))

    def clear(self) -> None:
        """Delete all parts, including files that a lost node did not finish."""
        self._files.clear()


@dataclass(frozen=True)
class StagedEvidence(StoredEvidence):
    """Vectors from staged parts, with their captions."""

    captions: tuple[str, ...]


class StagedEncoder(EncoderWrapper):
    """The encoder of an index run whose pictures were encoded elsewhere. Its "pixels" are positions in the parts."""

    def __init__(self, encoder: Encoder, staged: StagedParts) -> None:
        super().__init__(encoder)
        self._staged = staged
        self._names: list[str] = []

    def token(self, place: tuple[str, int]) -> NDArray[np.uint8]:
        """The stand-in for the pixels of this picture."""
        if not self._names or self._names[-1] != place[0]:
            self._names.append(place[0])
        return np.array([len(self._names) - 1, place[1]], np.int64).view(np.uint8)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> StagedEvidence:
        rows: list[dict[str, NDArray[Any]]] = []
        captions = []
        for token in prepared:
            number, inside = token.view(np.int64).tolist()
            part = self._staged.part(self._names[number])
            one = part.seen[inside]
            assert one.place is not None
            rows.append({kind: array[one.place] for kind, array in part.arrays.items()})
            captions.append(one.caption or "")
        parts = {kind: np.stack([row[kind] for row in rows]) for kind in rows[0]}
        global_vectors = parts[layout.GLOBAL].astype(np.float32)
        none = np.zeros((len(rows), 0, self.card.dim), np.float32)  # local vectors stay in the parts
        return StagedEvidence(global_vectors, none, parts, tuple(captions))


def named(one: StagedPicture, candidate: Candidate) -> Entry:
    """The entry with today's id, metadata and source: the part may be older than a changed table."""
    return replace(one.entry, id=candidate.id, metadata=candidate.metadata, source=candidate.source)
