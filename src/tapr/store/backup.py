"""Copies of a whole gallery: a backup, or a gallery made again from one. Taken while others write, and verified.

What is copied is one published snapshot: its catalogue, the committed rows of its shards and the uploads that it names;
and its saved searches. Files of a snapshot are not changed but deleted once a later one is published; then the copy
goes on with that one. After a few tries the writer's lock is taken, so that a gallery that is written to without a
pause is copied, too. The manifest comes last: a copy that was stopped is no gallery.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tapr.errors import BadInput, TaprError
from tapr.store import layout, uploads
from tapr.store.catalog import Catalog
from tapr.store.layout import GrowingArray, Manifest, catalog_path, shard_path
from tapr.store.lock import writer_lock
from tapr.store.saved_searches import FILE, SavedSearchFile
from tapr.store.snapshot import open_catalog
from tapr.store.verify import uploaded, verify
from tapr.utils.files import move_into_place, sync_file, sync_folder

_FREE_TRIES = 3  # without the lock


@dataclass(frozen=True)
class Copied:
    snapshot: int | None
    pictures: int
    files: int
    bytes: int


def copy_gallery(source: Path, target: Path, say: Callable[[str], None] = lambda sentence: None) -> Copied:
    """Copies the gallery at `source` into the new folder `target`, and verifies the copy."""
    _refuse_used(target)
    Manifest.read(source)  # says what is wrong before a folder is made
    target.mkdir(parents=True, exist_ok=True)
    for number in range(_FREE_TRIES + 1):
        lock = contextlib.nullcontext() if number < _FREE_TRIES else writer_lock(source, "a backup", say=say)
        with lock:
            manifest = Manifest.read(source)
            try:
                copied = _copy(source, manifest, target)
                break
            except (OSError, TaprError):
                if number == _FREE_TRIES or Manifest.read(source) == manifest:
                    raise
                say("the gallery was written to meanwhile: going on with its new state")
    verdict = verify(target)
    if not verdict.is_whole:
        (target / layout.MANIFEST).unlink()
        hurt = [f"{one.file} {one.reason}" for one in verdict.damage]
        hurt += [f"{one.file} {one.reason}" for one in verdict.uploads]
        raise TaprError(f"{source} is damaged ({hurt[0]}): see tapr doctor --verify -g {source}, and tapr repair")
    return copied


def _refuse_used(target: Path) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir() or (target / layout.MANIFEST).exists() or not _is_left(target):
        raise BadInput(f"{str(target)!r} is not empty: name a new folder")


def _is_left(target: Path) -> bool:
    """Whether the folder holds nothing but what a copy left that was stopped."""
    own = ("catalog", uploads.FOLDER, ".manifest", FILE, f".{FILE}", *layout.KINDS)
    return all(item.name.startswith(own) for item in target.iterdir())


def _copy(source: Path, manifest: Manifest, target: Path) -> Copied:
    catalog = open_catalog(source, manifest, wait=True)
    try:
        wanted = _rows(source, manifest, catalog)
        wanted_uploads = [Path(entry.path) for entry in uploaded(catalog)]
        pictures = catalog.counts()["pictures"]
    finally:
        catalog.close()
    keep = {target / path.name for path in wanted}
    for left in target.iterdir():  # of a try before this one
        if left.is_file() and left not in keep:
            left.unlink()
    size = _copied(catalog_path(source, manifest.snapshot), catalog_path(target, manifest.snapshot))
    for path, rows in wanted.items():
        size += _copied_rows(path, target / path.name, manifest, rows)
    for path in wanted_uploads:
        inside = target.absolute() / path.relative_to(source.absolute())
        inside.parent.mkdir(parents=True, exist_ok=True)
        if not inside.exists():
            size += _copied(path, inside)
    saved = SavedSearchFile(source)
    if saved.exists():
        move_into_place(saved.copy_to(target), target / FILE)
        size += (target / FILE).stat().st_size
    _sync(target)
    (target / f".{layout.MANIFEST}.new").write_bytes((source / layout.MANIFEST).read_bytes())
    if Manifest.read(source) != manifest:
        raise TaprError("the gallery was written to meanwhile")
    sync_file(target / f".{layout.MANIFEST}.new")
    os.replace(target / f".{layout.MANIFEST}.new", target / layout.MANIFEST)
    sync_folder(target)
    return Copied(manifest.snapshot, pictures, 2 + len(wanted) + len(wanted_uploads) + saved.exists(), size)


def _rows(folder: Path, manifest: Manifest, catalog: Catalog) -> dict[Path, int]:
    """The shard files, and how many rows of each are committed."""
    total, generation = catalog.rows_committed(), catalog.generation()
    return {
        shard_path(folder, kind, generation, first // manifest.shard_rows): min(manifest.shard_rows, total - first)
        for first in range(0, total, manifest.shard_rows)
        for kind in manifest.kinds()
    }


def _copied(path: Path, to: Path) -> int:
    new = to.with_name(f".{to.name}.copy")
    shutil.copyfile(path, new)
    sync_file(new)
    os.replace(new, to)
    return to.stat().st_size


def _copied_rows(path: Path, to: Path, manifest: Manifest, rows: int) -> int:
    """Rows past the committed ones belong to a run that has not published yet."""
    kind = path.name.partition("-")[0]
    shape, dtype = manifest.kinds()[kind]
    length = len(layout.npy_header(rows, shape, dtype)) + rows * math.prod(shape) * dtype.itemsize
    if not to.exists() or to.stat().st_size != length:
        _copied(path, to)
        GrowingArray(to, shape, dtype, rows).close()
        sync_file(to)
    return length


def _sync(folder: Path) -> None:
    for place, _, _ in os.walk(folder):
        sync_folder(Path(place))
