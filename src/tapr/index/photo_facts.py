"""Metadata columns from photographs and their XMP sidecars: which are to be read in an index run, and reading them.

An entry's metadata are the facts of its file and, over them, the columns of its table. A name that a table has belongs
to the table, for all of its pictures; that is how a later run tells them apart without reading the files again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tapr.images.decode import DEFAULT_LIMITS, NoRoomToDecode
from tapr.images.photo_facts import FACTS
from tapr.images.workers import facts_apart
from tapr.images.xmp import MAX_PACKET_BYTES
from tapr.index.sources import Candidate
from tapr.store import uploads
from tapr.store.catalog import Entry
from tapr.utils.progress import Progress
from tapr.utils.rooted import NotRegular, open_regular
from tapr.utils.threads import thread_count

STATE = "photo_facts"  # what the catalogue remembers of the last run's reading; none: files were not read
_VERSION = 1  # another one reads all files again
_JPEG_HEAD = 2**20  # bytes of a JPEG file that hold its metadata
_SUFFIX = ".xmp"
_AHEAD = 256  # files that wait to be read


@dataclass(frozen=True)
class PhotoFacts:
    """Which facts of files count in this run."""

    wanted: bool
    before: dict[str, Any]  # of the last run, as `state`
    of_tables: dict[str, list[str]] = field(default_factory=dict)  # source -> facts that its table has as columns
    sidecars: dict[str, list[list[Any]]] = field(default_factory=dict)  # picture -> path, size and time of each

    @classmethod
    def of(cls, wanted: bool, before: object, candidates: Sequence[Candidate]) -> PhotoFacts:
        """Look for sidecars and for columns of tables."""
        known = before if isinstance(before, dict) else {}
        if not wanted:
            return cls(False, known)
        of_tables: dict[str, set[str]] = {}
        folders: dict[str, dict[str, str]] = {}
        sidecars = {}
        for candidate in candidates:
            if candidate.source == uploads.SOURCE:
                continue
            if names := candidate.metadata.keys() & set(FACTS):
                of_tables.setdefault(candidate.source, set()).update(names)
            folder, name = os.path.split(candidate.path)
            if folder not in folders:
                folders[folder] = _sidecars_in(folder)
            if stats := _stats(folder, name, folders[folder]):
                sidecars[candidate.path] = stats
        return cls(True, known, {source: sorted(names) for source, names in of_tables.items()}, sidecars)

    @property
    def state(self) -> dict[str, Any]:
        """What the next run compares with."""
        if not self.wanted:
            return {}
        return {"version": _VERSION, "tables": self.of_tables, "sidecars": self.sidecars}

    def is_stale(self, candidate: Candidate) -> bool:
        """Whether a file that did not change has to be read all the same."""
        if not self.wanted or candidate.source == uploads.SOURCE:
            return False
        before, source = self.before, candidate.source
        return (
            before.get("version") != _VERSION
            or before.get("tables", {}).get(source) != self.of_tables.get(source)
            or before.get("sidecars", {}).get(candidate.path) != self.sidecars.get(candidate.path)
        )

    def metadata(self, entry: Entry, candidate: Candidate) -> dict[str, Any]:
        """Return the metadata of a picture whose file need not be read again."""
        of_table = self.of_tables.get(candidate.source, ())
        known = {name: entry.metadata[name] for name in FACTS if name in entry.metadata and name not in of_table}
        return {**(known if self.wanted else {}), **candidate.metadata}

    def read(self, candidate: Candidate) -> dict[str, Any]:
        """Read the file and return the picture's metadata."""
        if not self.wanted or candidate.source == uploads.SOURCE:
            return candidate.metadata
        facts: dict[str, Any] = {}
        with suppress(OSError, ValueError, NotRegular, NoRoomToDecode):  # whoever decodes the file says what is wrong
            packets = [_content(path, MAX_PACKET_BYTES) for path, *_ in self.sidecars.get(candidate.path, ())]
            facts = facts_apart(_content(candidate.path, DEFAULT_LIMITS.bytes), packets)
        of_table = self.of_tables.get(candidate.source, ())
        return {**{name: value for name, value in facts.items() if name not in of_table}, **candidate.metadata}

    def read_all(self, candidates: Sequence[Candidate], progress: Progress) -> list[Candidate]:
        """Return the candidates with the metadata of their files."""
        if not self.wanted or not candidates:
            return list(candidates)
        progress.start(len(candidates), "reading metadata")
        out = []
        with ThreadPoolExecutor(thread_count(), thread_name_prefix="tapr-facts") as pool:
            for start in range(0, len(candidates), _AHEAD):
                some = candidates[start : start + _AHEAD]
                out += [
                    replace(one, metadata=found) for one, found in zip(some, pool.map(self.read, some), strict=True)
                ]
                progress.advance(len(some))
        return out


def _sidecars_in(folder: str) -> dict[str, str]:
    """Return the names of the sidecars in a folder by their lower-case form."""
    try:
        with os.scandir(folder) as files:
            return {file.name.lower(): file.name for file in files if file.name.lower().endswith(_SUFFIX)}
    except OSError:
        return {}


def _stats(folder: str, name: str, sidecars: dict[str, str]) -> list[list[Any]]:
    """Return the path, size and time of a picture's sidecars: photo.jpg.xmp before photo.xmp."""
    stats: list[list[Any]] = []
    for sidecar in (name + _SUFFIX, os.path.splitext(name)[0] + _SUFFIX) if sidecars else ():
        if sidecar.lower() in sidecars:
            path = os.path.join(folder, sidecars[sidecar.lower()])
            with suppress(OSError):
                status = os.stat(path)
                stats.append([path, status.st_size, status.st_mtime_ns])
    return stats


def _content(path: str, most: int) -> bytes:
    """Return a file's content, or the head of a JPEG."""
    with open_regular(path) as file:
        head = file.read(min(most, _JPEG_HEAD))
        return head if head.startswith(b"\xff\xd8\xff") else head + file.read(most - len(head))
