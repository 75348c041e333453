"""Repair: encode again what is damaged, and nothing else.

A damaged shard file is copied, its hurt rows are written into the copy, and the copy takes its place at once. Readers
that have the old file open keep it. Vectors that come out as they were are covered by the checksums that stand in the
catalogue, so nothing else changes. Where they do not (another processor, a picture that is gone) a new snapshot with
new checksums is published. A repair that is stopped is begun again: what it replaced is whole.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, Evidence
from tapr.errors import TaprError
from tapr.images.decode import BadImage, read_bytes, sha256_of
from tapr.index.encode import NOT_NUMBERS, encode_checked
from tapr.index.load import Loaded, load_in_order
from tapr.index.sources import Candidate
from tapr.store import layout, uploads
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import Checksum, sum_of
from tapr.store.layout import Manifest, npy_header
from tapr.store.shards import local_parts, parts_of, summariser_in, summary_parts
from tapr.store.snapshot import Draft, open_catalog
from tapr.store.summary import Summariser
from tapr.store.verify import Damage, check_contents, damaged_files, damaged_uploads, header_bytes, uploaded
from tapr.utils.files import move_into_place
from tapr.utils.progress import Progress

_FIRST_STAGE = set(layout.SUMMARY_KINDS)  # follow from what is stored of the vectors
_DERIVED = {layout.CODES, layout.SCALES, layout.ERRORS, *_FIRST_STAGE}  # follow from fp16 vectors
_COPY = ".repair"
_LEFT = re.compile(
    rf"\.{layout.SHARD_NAME}\.repair|\.{re.escape(layout.MANIFEST)}\.[0-9a-f]{{8}}"
)  # by a killed repair
_BATCH = 16  # pictures handed to the encoder at once


@dataclass
class Repair:
    """The result of a repair."""

    files: list[str] = field(default_factory=list)  # that were written anew
    encoded: int = 0  # pictures that were encoded again
    derived: int = 0  # rows whose codes were made from their stored vectors
    lost: list[tuple[str, str]] = field(default_factory=list)  # path, reason: pictures that left the gallery
    restored: list[str] = field(default_factory=list)  # ids of uploads whose file was copied from one of equal content
    # ids of uploads whose file is lost, and why; they are found by searches, and their picture has to be put again
    lost_uploads: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0


def run_repair(folder: Path, manifest: Manifest, encoder: Callable[[], Encoder], progress: Progress) -> Repair:
    """Make damaged rows anew. The caller holds the writer's lock; the encoder is loaded if there is work for it."""
    begin = time.perf_counter()
    catalog = open_catalog(folder, manifest, wait=True)
    try:
        for left in layout.files_named(folder, _LEFT):
            left.unlink()
        check_contents(manifest, catalog)
        damage = [one for one in damaged_files(folder, manifest, catalog) if one.kind is not None]
        repair = _Repair(folder, manifest, catalog, encoder, progress)
        repair.restore_uploads()
        if damage:
            repair.run(damage)
    finally:
        catalog.close()
    repair.report.seconds = time.perf_counter() - begin
    return repair.report


class _Repair:
    def __init__(
        self, folder: Path, manifest: Manifest, catalog: Catalog, encoder: Callable[[], Encoder], progress: Progress
    ) -> None:
        self._folder, self._manifest, self._catalog = folder, manifest, catalog
        self._encoder, self._progress = encoder, progress
        self._lost: dict[int, str] = {}  # row -> why it cannot be encoded again
        self._sums: list[Checksum] = []  # that are not what they were
        self.report = Repair()

    def restore_uploads(self) -> None:
        """Uploads that are damaged are copied from another file of the same content, where there is one."""
        for hurt in damaged_uploads(self._folder, uploaded(self._catalog)):
            path = Path(uploads.as_used(self._folder, hurt.file))
            data = self._equal_content(uploads.sha256_named(path), path)
            if data is None:
                self.report.lost_uploads.append((hurt.id, hurt.reason))
            else:
                uploads.keep(path, data)
                self.report.restored.append(hurt.id)

    def _equal_content(self, sha256: str, path: Path) -> bytes | None:
        for entry in self._catalog.by_sha256(sha256):
            if entry.path != str(path):
                with contextlib.suppress(BadImage):
                    data = read_bytes(entry.path)
                    if sha256_of(data) == sha256:
                        return data
        return None

    def run(self, damage: list[Damage]) -> None:
        by_shard: defaultdict[int, list[Damage]] = defaultdict(list)
        for one in damage:
            by_shard[one.shard].append(one)
        rows = len({row for one in damage for start, stop in one.rows for row in range(start, stop)})
        self._progress.say(f"damaged files: {len(damage):,}, rows in them to be made again: {rows:,}")
        self._progress.start(rows, "repairing")
        for shard, files in by_shard.items():
            self._shard(shard, files)
        if self._lost or self._sums:
            self._publish()
        else:
            self._manifest.write(self._folder)  # as it was; but a server takes a new file as its sign to open again

    def _shard(self, shard: int, damage: list[Damage]) -> None:
        hurt = self._hurt(damage)
        wanted = sorted({kind for kinds in hurt.values() for kind in kinds} | {str(one.kind) for one in damage})
        copies = {kind: _Copy(self._folder, self._manifest, self._catalog, kind, shard) for kind in wanted}
        try:
            for row in hurt:  # dead rows stay so, and so do those that cannot be had again
                for kind in hurt[row]:
                    copies[kind].write(row, None)
            for row, parts in self._parts(hurt):
                for kind in hurt[row]:
                    copies[kind].write(row, parts[kind])
            for kind, copy in copies.items():
                copy.put_in_place()
                self._sums += copy.changed_sums({row for row in hurt if kind in hurt[row]})
                if any(one.kind == kind for one in damage):
                    self.report.files.append(copy.path.name)
        finally:
            for copy in copies.values():
                copy.close()

    def _hurt(self, damage: list[Damage]) -> dict[int, set[str]]:
        """Row -> the kinds that are written anew."""
        hurt: defaultdict[int, set[str]] = defaultdict(set)
        for one in damage:
            for start, stop in one.rows:
                for row in range(start, stop):
                    hurt[row].add(str(one.kind))
        for kinds in hurt.values():
            if not self._is_derived(kinds):  # encoded again, perhaps with other bits: so is what follows from it
                kinds.update(_DERIVED & set(self._manifest.kinds()))
        return hurt

    def _parts(self, hurt: dict[int, set[str]]) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        """Rows and what their files should hold; those that cannot be had are noted as lost."""
        stored = {row for row, kinds in hurt.items() if self._is_derived(kinds)}
        for row in sorted(stored):
            known = {kind: self._stored(row, kind) for kind in self._manifest.vector_kinds() if kind not in hurt[row]}
            if layout.LOCAL in known:
                known |= local_parts(known[layout.LOCAL], self._manifest)
            yield row, {kind: part[0] for kind, part in self._summarised(known).items()}
            self.report.derived += 1
            self._progress.advance(1)
        wanted: dict[int, list[Entry]] = {row: [] for row in sorted(hurt) if row not in stored}
        if not wanted:
            return
        for entry in self._catalog.by_rows(min(wanted), max(wanted) + 1):
            if entry.row in wanted:
                wanted[entry.row].append(entry)
        live = {row: entries for row, entries in wanted.items() if entries}
        self._progress.advance(len(wanted) - len(live))
        readied = self._readied(live)
        while lot := list(islice(readied, _BATCH)):
            done = encode_checked(self._encoder(), [loaded for _, loaded in lot])
            for row in (row for (row, _), ok in zip(lot, done.good, strict=True) if not ok):
                self._lost[row] = NOT_NUMBERS
            rows = [row for (row, _), ok in zip(lot, done.good, strict=True) if ok]
            yield from self._each(rows, done.evidence)
            self.report.encoded += len(rows)
            self._progress.advance(len(lot))

    def _each(self, rows: list[int], evidence: Evidence) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        parts = self._summarised(parts_of(evidence, self._manifest))
        yield from ((row, {kind: part[i] for kind, part in parts.items()}) for i, row in enumerate(rows))

    def _readied(self, live: dict[int, list[Entry]]) -> Iterator[tuple[int, Loaded]]:
        """The pictures of these rows, from files that are what they were; equal files stand in for each other."""
        if not live:
            return
        encoder = self._encoder()
        firsts = [Candidate(entries[0].id, entries[0].path) for entries in live.values()]
        for (row, entries), first in zip(live.items(), load_in_order(firsts, encoder), strict=True):
            loaded, wanted = first, entries[0].sha256
            for other in entries[1:]:
                if loaded.pixels is not None and loaded.entry.sha256 == wanted:
                    break
                (loaded,) = load_in_order([Candidate(other.id, other.path)], encoder)
            if loaded.pixels is not None and loaded.entry.sha256 == wanted:
                yield row, loaded
            else:
                self._lost[row] = loaded.entry.failure or "the file has changed since"
                self._progress.advance(1)

    def _is_derived(self, kinds: set[str]) -> bool:
        """Return whether these follow from what is stored of a row beside them."""
        return kinds <= (_DERIVED if layout.LOCAL in self._manifest.kinds() else _FIRST_STAGE)

    def _summarised(self, parts: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """With the rows of the first stage, where the gallery has one."""
        return parts if not self._manifest.first_stage else {**parts, **summary_parts(parts, self._summariser)}

    @cached_property
    def _summariser(self) -> Summariser:
        return summariser_in(self._catalog)

    def _stored(self, row: int, kind: str) -> NDArray[Any]:
        """(1, ...) from the file, which is not damaged there."""
        shard, place = divmod(row, self._manifest.shard_rows)
        shape, dtype = self._manifest.kinds()[kind]
        with layout.shard_path(self._folder, kind, self._catalog.generation(), shard).open("rb") as file:
            offset = header_bytes(file, shape, dtype) or len(npy_header(1, shape, dtype))
            file.seek(offset + place * math.prod(shape) * dtype.itemsize)
            return np.frombuffer(file.read(math.prod(shape) * dtype.itemsize), dtype).reshape(1, *shape)

    def _publish(self) -> None:
        draft = Draft(self._folder, self._manifest, self._catalog, afresh=True)
        try:
            catalog = draft.begin()
            catalog.put_checksums(self._sums)
            for row, reason in self._lost.items():
                for entry in catalog.by_rows(row, row + 1):
                    failure = f"its stored vectors were damaged, and they cannot be made again: {reason}"
                    # no size and time: the next index run looks at the file again
                    catalog.put(replace(entry, row=None, failure=failure, size=-1, mtime_ns=-1))
                    self.report.lost.append((entry.path, reason))
            catalog.commit()
            draft.publish()
        finally:
            draft.close()


class _Copy:
    """A copy of a damaged shard file, into which its hurt rows are written."""

    def __init__(self, folder: Path, manifest: Manifest, catalog: Catalog, kind: str, shard: int) -> None:
        self._shape, self._dtype = manifest.kinds()[kind]
        self._row_bytes = math.prod(self._shape) * self._dtype.itemsize
        self._first = shard * manifest.shard_rows
        rows = min(manifest.shard_rows, catalog.rows_committed() - self._first)
        self._sums = catalog.checksums(kind, shard)
        self.path = layout.shard_path(folder, kind, catalog.generation(), shard)
        self._copy = folder / f".{self.path.name}{_COPY}"
        self._file: IO[bytes] = self._copy.open("x+b")
        try:
            offset = self._take_over()
            self._offset = len(npy_header(rows, self._shape, self._dtype)) if offset is None else offset
            # rows after the committed ones belong to a stopped run, which will be continued
            held = max(rows, (self._file.seek(0, os.SEEK_END) - self._offset) // self._row_bytes)
            self._file.truncate(self._offset + held * self._row_bytes)
            if offset in (None, len(npy_header(held, self._shape, self._dtype))):
                self._file.seek(0)
                self._file.write(npy_header(held, self._shape, self._dtype))
        except BaseException:
            self.close()
            raise

    def _take_over(self) -> int | None:
        """-> the length of the old file's header, if that is good."""
        try:
            with self.path.open("rb") as old:
                offset = header_bytes(old, self._shape, self._dtype)
                old.seek(0)
                shutil.copyfileobj(old, self._file)
                return offset
        except FileNotFoundError:
            return None

    def write(self, row: int, values: NDArray[Any] | None) -> None:
        """None writes zeros."""
        self._file.seek(self._offset + (row - self._first) * self._row_bytes)
        self._file.write(bytes(self._row_bytes) if values is None else values.astype(self._dtype).tobytes())

    def put_in_place(self) -> None:
        self._file.flush()
        try:
            move_into_place(self._copy, self.path)
        except PermissionError:
            raise TaprError(f"cannot replace {self.path}: end the programs that have the gallery open") from None

    def changed_sums(self, rows: set[int]) -> list[Checksum]:
        """Return the checksums of chunks with these rows that are not those of the catalogue."""
        out = []
        for one in self._sums:
            if rows.isdisjoint(range(self._first + one.start, self._first + one.start + one.rows)):
                continue
            self._file.seek(self._offset + one.start * self._row_bytes)
            data = np.frombuffer(self._file.read(one.rows * self._row_bytes), np.uint8)
            if not one.holds_for(data):
                out.append(replace(one, sha256=sum_of(data)))
        return out

    def close(self) -> None:
        self._file.close()
        self._copy.unlink(missing_ok=True)
