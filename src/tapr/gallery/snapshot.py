"""Snapshots: one state of a gallery, whole. Index runs publish the next one; whoever has one open keeps it.

The manifest names the catalogue in use. A run works on a copy of it under the next number and appends to the shards
past the rows that the published catalogue counts. Writing the manifest, which is atomic, publishes all of it at once.
Until then nobody sees any of it; afterwards files that are no longer named are deleted, and those who have them open
keep them, as the system promises.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput, TaprError
from tapr.gallery import layout
from tapr.gallery.catalog import Catalog
from tapr.gallery.layout import Manifest, catalog_path
from tapr.gallery.shards import ShardReader


@dataclass(frozen=True, eq=False)
class Snapshot:
    manifest: Manifest
    catalog: Catalog
    keys: NDArray[np.int64]  # (N,) of the pictures in gallery order, in the catalogue
    rows: NDArray[np.int64]  # (N,) and in the shards
    shards: ShardReader

    @classmethod
    def open(cls, folder: Path) -> Snapshot:
        while True:
            manifest = Manifest.read(folder)
            try:
                return cls._of(folder, manifest)
            except (FileNotFoundError, TaprError) as error:
                if Manifest.read(folder) != manifest:
                    continue  # an index run ended in between and deleted what it no longer names
                if isinstance(error, FileNotFoundError):
                    raise BadInput(
                        f"the catalogue {error} is missing: restore it, or index the pictures into a new folder"
                    ) from None
                raise

    @classmethod
    def _of(cls, folder: Path, manifest: Manifest) -> Snapshot:
        catalog = Catalog.open(catalog_path(folder, manifest.snapshot))
        keys, rows = catalog.select()
        shards = ShardReader(folder, manifest, catalog.generation(), catalog.rows_committed())
        return cls(manifest, catalog, keys, rows, shards)


class Draft:
    """The next snapshot while an index run writes it. Only the holder of the writer's lock has one."""

    def __init__(self, folder: Path, published: Snapshot) -> None:
        self._folder, self._published = folder, published
        self._number = (published.manifest.snapshot or 0) + 1
        self._path = catalog_path(folder, self._number)
        unfinished = self._unfinished()
        self.begun = unfinished is not None
        self.catalog = unfinished or published.catalog  # to be read; `begin` makes it one that can be written

    def begin(self) -> Catalog:
        if not self.begun:
            _delete(self._path)
            self._published.catalog.copy_to(self._path)
            self.catalog = Catalog.open(self._path, published=False)
            self.begun = True
        return self.catalog

    def publish(self) -> None:
        """From here on the gallery is what the draft says."""
        generation, counts = self.catalog.generation(), self.catalog.counts()
        self.catalog.commit()
        self.catalog.close()
        new = {"format_version": layout.FORMAT_VERSION, "snapshot": self._number, "counts": counts}
        self._published.manifest.model_copy(update=new).write(self._folder)
        _sweep(self._folder, self._path, generation)

    def close(self) -> None:
        """What was not committed is forgotten; what was is found by the next run."""
        if self.begun:
            self.catalog.close()

    def _unfinished(self) -> Catalog | None:
        """What a run that was stopped left, if the shards hold what it counts."""
        catalog = None
        try:
            catalog = Catalog.open(self._path, published=False)
            ShardReader(self._folder, self._published.manifest, catalog.generation(), catalog.rows_committed())
        except FileNotFoundError:
            return None
        except TaprError:  # the published snapshot stands, so what the stopped run did is done again
            if catalog is not None:
                catalog.close()
            _delete(self._path)
            return None
        return catalog


def _delete(catalog: Path) -> None:
    for path in catalog.parent.glob(f"*{catalog.name}*"):  # with its journal, and a copy that was cut short
        path.unlink()


def _sweep(folder: Path, catalog: Path, generation: int) -> None:
    old = [path for path in folder.glob("*catalog*.sqlite*") if path != catalog]
    for kind in layout.KINDS:
        old += [path for path in folder.glob(f"{kind}-*-*.npy") if path.name.split("-")[1] != str(generation)]
    for path in old:
        with contextlib.suppress(OSError):  # Windows does not delete what a reader holds: the next run tries again
            path.unlink()
