"""Snapshots: one state of a gallery, whole. Index runs publish the next one; whoever has one open keeps it.

The manifest names the catalogue in use. A run works on a copy of it under the next number and appends to the shards
past the rows that the published catalogue counts. Writing the manifest, which is atomic, publishes all of it at once.
Until then nobody sees any of it; afterwards files that are no longer named are deleted, and those who have them open
keep them, as the system promises.
"""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError
from tapr.store import layout
from tapr.store.catalog import Catalog
from tapr.store.checksums import FileDigest
from tapr.store.connection import Locked
from tapr.store.layout import Manifest, catalog_path
from tapr.store.shards import ShardReader
from tapr.store.verify import check_catalog, damaged_files, missing_catalog

LARGE_CATALOG = 64 * 2**20  # bytes; smaller ones are checked in about 50 ms
_CATALOGS = re.compile(rf"\.?{layout.CATALOG_NAME}(\.new|\.alone)?(-journal|-wal|-shm)?")
_SWEPT = re.compile(
    rf"{_CATALOGS.pattern}|\.?{layout.SHARD_NAME}(\.repair)?"
    # files that were being written
    rf"|\.({re.escape(layout.MANIFEST)}|vocabulary-[0-9a-f]{{32}}\.cache)\.[0-9a-f]{{8}}"
)
ALONE = "alone"  # state key: the last snapshot whose draft must not be continued by a later run


@dataclass(frozen=True, eq=False)
class Snapshot:
    manifest: Manifest
    catalog: Catalog
    keys: NDArray[np.int64]  # (N,) of the pictures in gallery order, in the catalogue
    rows: NDArray[np.int64]  # (N,) and in the shards
    shards: ShardReader

    @classmethod
    def open(cls, folder: Path, *, wait: bool = False) -> Snapshot:
        """Open the published snapshot. `wait`: after all of a large catalogue is checked too."""
        while True:
            manifest = Manifest.read(folder)
            try:
                return cls.of(folder, manifest, wait=wait)
            except TaprError:
                if Manifest.read(folder) != manifest:
                    continue  # an index run has just published and deleted the old files
                raise

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, *, wait: bool = False) -> Snapshot:
        """Open the snapshot of this manifest."""
        catalog = open_catalog(folder, manifest, wait=wait)
        try:
            keys, rows = catalog.select()
            shards = ShardReader(folder, manifest, catalog)
            if len(rows) and not 0 <= rows[0] <= rows[-1] < shards.rows:
                raise TaprError(f"the catalogue of {folder} names rows that were never written: restore it from a copy")
        except BaseException:
            catalog.close()
            raise
        return cls(manifest, catalog, keys, rows, shards)


def open_catalog(folder: Path, manifest: Manifest, *, wait: bool = False) -> Catalog:
    """The published catalogue, after its checksum. That of a large one is computed while it is used already: what
    names pictures, and so every answer, waits for it. With `wait` all is checked before this returns."""
    path = catalog_path(folder, manifest.snapshot)
    restore = "restore it from a copy, or index the pictures into a new folder"
    try:
        size = path.stat().st_size
        if size != manifest.catalog.bytes:
            raise TaprError(f"the catalogue {path} has {size:,} bytes, not {manifest.catalog.bytes:,}: {restore}")
        if wait or size <= LARGE_CATALOG:
            check_catalog(folder, manifest)
        catalog = Catalog.open(path)
        if not wait and size > LARGE_CATALOG:
            catalog.check_in_background(lambda: check_catalog(folder, manifest))
    except FileNotFoundError:
        raise missing_catalog(path) from None
    except OSError as error:
        raise TaprError(f"cannot read the catalogue {path}: {(error.strerror or str(error)).lower()}") from None
    if catalog.gallery_id() != manifest.gallery_id:
        catalog.close()
        raise TaprError(f"the catalogue {path} is another gallery's: {restore}")
    return catalog


class Draft:
    """The next snapshot while it is written. Only the holder of the writer's lock has one."""

    def __init__(
        self, folder: Path, manifest: Manifest, published: Catalog, *, afresh: bool = False, alone: bool = False
    ) -> None:
        """Continues the draft of a stopped run, unless `afresh`. A draft that is `alone` is not continued by later runs
        either: it has another name until it is published, and is synchronised to disk only then.
        """
        self._folder, self._manifest, self._published = folder, manifest, published
        self._number = manifest.snapshot + 1
        self._path = catalog_path(folder, self._number)
        self._alone = alone
        unfinished = None if afresh or alone else self._unfinished()
        self.begun = unfinished is not None
        self.catalog = unfinished or published  # for reading; `begin` makes it writable

    def begin(self) -> Catalog:
        if not self.begun:
            _delete(self._path)
            path = self._path.with_name(f".{self._path.name}.alone") if self._alone else self._path
            self._published.copy_to(path, sync=not self._alone)
            self.catalog = Catalog.open(path, published=False)
            self.begun = True
            if self._alone:
                self.catalog.sync_late()
                self.catalog.set_state(ALONE, self._number)  # in case of a kill between the rename and the manifest
        return self.catalog

    def publish(self, *, first_stage: bool = False) -> Manifest:
        """Publish the draft: it becomes the gallery's current snapshot. `first_stage`: rows have summaries now."""
        self._manifest = self._manifest.model_copy(update={"first_stage": first_stage or self._manifest.first_stage})
        generation, counts = self.catalog.generation(), self.catalog.counts()
        self.catalog.publish(self._path)
        _trim(self._folder, self._manifest, generation, counts["rows"])
        new = {"snapshot": self._number, "counts": counts, "catalog": FileDigest.of(self._path)}
        published = self._manifest.model_copy(update=new)
        published.write(self._folder)
        _sweep(self._folder, published, self._path, generation, counts["rows"])
        return published

    def discard(self) -> None:
        """Drop the draft."""
        self.catalog.close()
        _delete(self._path)

    def tidy(self) -> None:
        """Delete leftovers of a run that was killed between publishing and cleaning up. Only without a draft."""
        rows, path = self._published.rows_committed(), catalog_path(self._folder, self._manifest.snapshot)
        _sweep(self._folder, self._manifest, path, self._published.generation(), rows)

    def close(self) -> None:
        """Close the draft. Uncommitted changes are lost; committed ones are found by the next run."""
        if self.begun:
            self.catalog.close()

    def _unfinished(self) -> Catalog | None:
        """The draft of a stopped run, if the shards hold its rows."""
        catalog = None
        try:
            catalog = Catalog.open(self._path, published=False)
            self._check(catalog)
        except FileNotFoundError:
            return None
        except Locked:
            raise
        except (TaprError, sqlite3.Error):  # the published snapshot is intact; the work of the stopped run is repeated
            if catalog is not None:
                catalog.close()
            _delete(self._path)
            return None
        return catalog

    def _check(self, catalog: Catalog) -> None:
        catalog.check_pages()
        if catalog.get_state(ALONE) == self._number:
            raise TaprError("it is of a write that was killed, of which nobody was told that it was done")
        if self._manifest.gallery_id != catalog.gallery_id():
            raise TaprError("it is of another gallery")
        same = catalog.generation() == self._published.generation()
        checked = self._published.rows_committed() if same else 0
        if damaged_files(self._folder, self._manifest, catalog, from_row=checked):
            raise TaprError("the shards do not hold what it counts")


def _trim(folder: Path, manifest: Manifest, generation: int, rows: int) -> None:
    """Truncate shard files to the committed rows, if a killed run appended more."""
    shard, keep = divmod(rows, manifest.shard_rows)
    for kind, (shape, dtype) in manifest.kinds().items():
        path = layout.shard_path(folder, kind, generation, shard)
        whole = len(layout.npy_header(keep, shape, dtype)) + keep * math.prod(shape) * dtype.itemsize
        if keep and path.stat().st_size > whole:
            layout.GrowingArray(path, shape, dtype, keep).close()


def _delete(catalog: Path) -> None:
    for path in layout.files_named(catalog.parent, _CATALOGS):
        if catalog.name in path.name:  # including its journal and unfinished copies
            path.unlink()


def _sweep(folder: Path, manifest: Manifest, catalog: Path, generation: int, rows: int) -> None:
    """Delete files that do not belong to this snapshot: old catalogues and generations, leftovers of killed runs."""
    shards = {
        layout.shard_path(folder, kind, generation, start // manifest.shard_rows)
        for kind in manifest.kinds()
        for start in range(0, rows, manifest.shard_rows)
    }
    for path in layout.files_named(folder, _SWEPT):
        if path in shards or path == catalog:
            continue
        with contextlib.suppress(OSError):  # Windows cannot delete open files: the next run tries again
            path.unlink()
