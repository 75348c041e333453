"""Compare the files found with the catalogue, so that an index run encodes as little as possible."""

from __future__ import annotations

import glob
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tapr.images.decode import BadImage, NoRoomToDecode, read_bytes, sha256_of
from tapr.index.ids import hidden_id
from tapr.index.photo_facts import PhotoFacts
from tapr.index.sources import Candidate, Found
from tapr.store import uploads
from tapr.store.catalog import WITHOUT_ID, Catalog, Entry
from tapr.utils.progress import Progress


@dataclass
class Plan:
    encode: list[Candidate] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)  # paths that are gone
    rename: list[str] = field(default_factory=list)  # paths whose entries get another id, now or when encoded
    put: list[Entry] = field(default_factory=list)  # known content under a new path, id, time, metadata or source
    kept: int = 0  # pictures that were not found, because their source or folder cannot be looked into
    unchanged: int = 0
    touched: int = 0
    renamed: int = 0
    removed: int = 0
    stale: set[str] = field(default_factory=set)  # paths of entries in `put` whose facts are read first
    damaged: list[tuple[str, str]] = field(default_factory=list)  # ids of uploads that are kept as they were, and why

    def __bool__(self) -> bool:
        return bool(self.encode or self.remove or self.rename or self.put)

    def read_facts(self, facts: PhotoFacts, progress: Progress) -> None:
        """Read the facts of files that are new, changed, moved, or were never read."""
        stale = [Candidate(put.id, put.path, put.metadata, put.source) for put in self.put if put.path in self.stale]
        read = facts.read_all([*self.encode, *stale], progress)
        self.encode = read[: len(self.encode)]
        metadata = {candidate.path: candidate.metadata for candidate in read}
        self.put = [replace(put, metadata=metadata.get(put.path, put.metadata)) for put in self.put]

    def apply(self, catalog: Catalog) -> None:
        """Do all but the encoding. Ids may go from picture to picture: each is let go before it is given."""
        catalog.remove(self.remove)
        catalog.free_ids(self.rename)
        for entry in self.put:
            catalog.put(entry)
        catalog.commit()

    def keep(self, candidate: Candidate, entry: Entry, facts: PhotoFacts) -> None:
        """Keep a picture whose file is as it was, under what its source says of it now."""
        is_stale = entry.row is not None and facts.is_stale(candidate)
        metadata = candidate.metadata if is_stale else facts.metadata(entry, candidate)
        same = not is_stale and (entry.id, entry.metadata) == (candidate.id, metadata)
        if not same or entry.source != candidate.source:
            self.put.append(replace(entry, id=candidate.id, metadata=metadata, source=candidate.source))
        if is_stale:
            self.stale.add(candidate.path)
        self.unchanged += same
        self.touched += not same

    def place(self, fresh: Sequence[tuple[Candidate, Entry | None]], known: _ByContent) -> set[str]:
        """Encode files of unknown content; others are known under another path or time. -> the paths that moved."""
        moved: set[str] = set()
        for candidate, _ in fresh:
            source = known.content_of(candidate)
            if source is None:
                self.encode.append(candidate)
                continue
            size, mtime_ns = _stat(candidate.path)
            self.stale.add(candidate.path)
            self.put.append(
                replace(
                    source, id=candidate.id, path=candidate.path, size=size, mtime_ns=mtime_ns,
                    metadata=candidate.metadata, source=candidate.source,
                )
            )  # fmt: skip
            if source.path == candidate.path:
                self.touched += 1
            else:
                self.renamed += 1
                moved.add(source.path)
        return moved


def make_plan(
    found: Found, entries: Sequence[Entry], facts: PhotoFacts, *, try_failed_again: bool = False, rehash: bool = False
) -> Plan:
    """Compare what was found with the catalogue. `rehash` reads every file, and finds content that changed while size
    and time did not.
    """
    plan = Plan()
    kept, gone = _absent(found, entries)
    plan.kept = sum(entry.row is not None for entry in kept)
    # a run that was stopped took their ids away and did not come to give them others
    plan.put = [replace(entry, id=hidden_id(entry.path)) for entry in kept if entry.id.startswith(WITHOUT_ID)]
    known = {entry.path: entry for entry in entries}
    fresh: list[tuple[Candidate, Entry | None]] = []  # new files, and files whose size or time changed
    for candidate in found.with_unique_ids({entry.id for entry in (*kept, *plan.put)}):
        entry = known.get(candidate.path)
        if entry is not None and entry.id != candidate.id:
            plan.rename.append(entry.path)
        if entry is not None and not _may_differ(candidate, entry, try_failed_again, rehash):
            plan.keep(candidate, entry, facts)
        elif candidate.source == uploads.SOURCE and (reason := uploads.damage_of(candidate.path)) is not None:
            # the catalogue holds the truth about it: other bytes are never encoded in its place
            plan.damaged.append((candidate.id, reason))
            plan.unchanged += 1
        else:
            fresh.append((candidate, entry))
    moved = plan.place(fresh, _ByContent([*gone, *(entry for _, entry in fresh if entry is not None)]))
    plan.remove = [entry.path for entry in gone]
    plan.removed = sum(entry.path not in moved for entry in gone)
    return plan


def _absent(found: Found, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return the pictures that were not found: those that may only be away, and those that are gone."""
    paths = {candidate.path for candidate in found.candidates}
    absent = [entry for entry in entries if entry.path not in paths]
    _look_beside(absent, found)
    kept: list[Entry] = []
    gone: list[Entry] = []
    for entry in absent:
        (kept if _stays(entry, found) else gone).append(entry)
    return kept, gone


def _may_differ(candidate: Candidate, entry: Entry, try_failed_again: bool, rehash: bool) -> bool:
    """Return whether the file has to be read again."""
    return (
        _stat(candidate.path) != (entry.size, entry.mtime_ns)
        or (entry.failure is not None and try_failed_again)
        or (rehash and _sha256(candidate.path) != entry.sha256)
    )


def folders_among(sources: Iterable[str], entries: Iterable[Entry]) -> set[str]:
    """Return the sources below which known pictures lie."""
    below = {entry.source: entry.path for entry in entries}
    return {source for source in sources if below.get(source, "").startswith(os.path.join(source, ""))}


def _look_beside(absent: Sequence[Entry], found: Found) -> None:
    """A glob passes over folders that cannot be listed: what was found there before is not known to be gone."""
    for folder in sorted({os.path.dirname(entry.path) for entry in absent if glob.has_magic(entry.source)}):
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            found.cannot_list(folder, error)


def _stays(entry: Entry, found: Found) -> bool:
    """Return whether a picture that was not found may only be away, because its source or folder cannot be read."""
    return entry.source in found.empty or any(
        entry.path.startswith(os.path.join(folder, "")) for folder in found.unreadable
    )


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
        except (BadImage, NoRoomToDecode):
            return None
        return min(same, key=lambda entry: entry.path != candidate.path, default=None)


def _sha256(path: str) -> str:
    try:
        return sha256_of(read_bytes(path))
    except (BadImage, NoRoomToDecode):
        return ""


def _stat(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:  # it vanished since it was listed: the encoding pass reports it by name
        return -1, -1
    return status.st_size, status.st_mtime_ns
