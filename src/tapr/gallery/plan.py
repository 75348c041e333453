"""What an index run has to do: compare the files found with the catalogue, and encode as little as possible."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tapr.gallery.catalog import Catalog, Entry
from tapr.gallery.sources import Candidate
from tapr.images import BadImage, read_bytes, sha256_of


@dataclass
class Plan:
    """Removals and refreshed entries are one transaction, before anything is encoded."""

    encode: list[Candidate] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)  # paths whose entries go (refreshed ones are put back)
    put: list[Entry] = field(default_factory=list)  # known content under a new path, id, time or metadata
    unchanged: int = 0
    touched: int = 0
    renamed: int = 0
    removed: int = 0

    def apply(self, catalog: Catalog) -> None:
        catalog.remove(self.remove)
        for entry in self.put:
            catalog.put(entry)
        catalog.commit()


def make_plan(candidates: Sequence[Candidate], catalog: Catalog) -> Plan:
    plan = Plan()
    paths = {candidate.path for candidate in candidates}
    gone = [entry for entry in catalog.entries() if entry.path not in paths]
    fresh: list[tuple[Candidate, Entry | None]] = []  # new files, and files whose size or time changed
    for candidate in candidates:
        entry = catalog.by_path(candidate.path)
        if entry is None or _stat(candidate.path) != (entry.size, entry.mtime_ns):
            fresh.append((candidate, entry))
        elif (entry.id, entry.metadata) != (candidate.id, candidate.metadata):
            plan.remove.append(entry.path)
            plan.put.append(replace(entry, id=candidate.id, metadata=candidate.metadata))
            plan.touched += 1
        else:
            plan.unchanged += 1

    known = _ByContent([*gone, *(entry for _, entry in fresh if entry is not None)])
    moved: set[str] = set()
    for candidate, entry in fresh:
        source = known.content_of(candidate)
        if source is None:
            plan.encode.append(candidate)
            continue
        size, mtime_ns = _stat(candidate.path)
        plan.put.append(
            replace(
                source, id=candidate.id, path=candidate.path, size=size, mtime_ns=mtime_ns, metadata=candidate.metadata
            )
        )
        if entry is not None:
            plan.remove.append(entry.path)
        if source.path == candidate.path:
            plan.touched += 1
        else:
            plan.renamed += 1
            moved.add(source.path)
    plan.remove.extend(entry.path for entry in gone)
    plan.removed = sum(entry.path not in moved for entry in gone)
    return plan


class _ByContent:
    """Entries by content hash. Only files of a size that occurs among them are read and hashed at all."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._sizes: set[int] = set()
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.row is not None:
                self._sizes.add(entry.size)
                self._entries[entry.sha256].append(entry)

    def content_of(self, candidate: Candidate) -> Entry | None:
        """The entry with this file's content; its own path's before another's."""
        if _stat(candidate.path)[0] not in self._sizes:
            return None
        try:
            same = self._entries.get(sha256_of(read_bytes(candidate.path)), [])
        except BadImage:
            return None
        return min(same, key=lambda entry: entry.path != candidate.path, default=None)


def _stat(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:  # it vanished since it was listed: the encoding pass reports it by name
        return -1, -1
    return status.st_size, status.st_mtime_ns
