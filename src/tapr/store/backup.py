"""Copies of a whole gallery: a backup, or a gallery made again from one. Taken while others write, and verified.

What is copied is one published snapshot: its catalogue, the committed rows of its shards and the uploads that it names;
and its saved searches. Files of a snapshot are not changed but deleted once a later one is published; then the copy
goes on with that one. After a few tries the writer's lock is taken, so that a gallery that is written to without a
pause is copied, too.

Neither folder is trusted: people hand backups on. Every file is read and written by its name below its folder, and no
link is followed (utils/rooted.py). The new folder is marked as unfinished until its files are verified; then the mark
becomes the manifest. A copy that was stopped is no gallery, and the next one into that folder cleans up after it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tapr.errors import BadInput, TaprError
from tapr.store import layout, uploads
from tapr.store.catalog import Catalog
from tapr.store.layout import Manifest, catalog_path, npy_header, shard_path
from tapr.store.lock import NAMES, writer_lock
from tapr.store.saved_searches import FILE, SavedSearchFile
from tapr.store.snapshot import open_catalog
from tapr.store.verify import check_contents, header_bytes, uploaded, verify_snapshot
from tapr.utils.files import make_folder
from tapr.utils.rooted import Root

_FREE_TRIES = 3  # without the lock
_UNFINISHED = f".{layout.MANIFEST}.copy"  # the mark of a folder whose copy is not finished
_PIECE = 2**20  # bytes copied at once
_MARKING = re.compile(rf"\.{re.escape(_UNFINISHED)}\.[0-9a-f]{{8}}")  # the mark, while it is written
_LEFT = re.compile(rf"\.?({layout.CATALOG_NAME}|{layout.SHARD_NAME}|{re.escape(FILE)})(\.[0-9a-f]{{8}})?")


@dataclass(frozen=True)
class Copied:
    snapshot: int | None
    pictures: int
    files: int
    bytes: int


def copy_gallery(source: Path, target: Path, say: Callable[[str], None] = lambda sentence: None) -> Copied:
    """Copy the gallery at `source` into the new folder `target`, and verify the copy."""
    _refuse_used(target)
    Manifest.read(source)  # says what is wrong before a folder is made
    make_folder(target)
    with writer_lock(target, "a copy of a gallery", say=say):
        _refuse_used(target)  # what was true before may not be true any more
        root = Root(target)
        root.write(_UNFINISHED, [])
        _clean(root, keep=())
        manifest, copied = _copy_last_snapshot(source, root, say)
        verdict = verify_snapshot(target, manifest)
        if not verdict.is_whole:
            advice = f"see tapr doctor --verify -g {source}, and tapr repair"
            raise TaprError(f"{source} is damaged ({verdict.first_reason}): {advice}")
        root.rename(_UNFINISHED, layout.MANIFEST)
    return copied


def _refuse_used(target: Path) -> None:
    """A folder is free when it is not there, is empty, or holds a copy that was stopped."""
    if not os.path.lexists(target):
        return
    if target.is_dir():
        names = {item.name for item in target.iterdir() if not _MARKING.fullmatch(item.name)} - {*NAMES}
        if not names or (_UNFINISHED in names and layout.MANIFEST not in names):
            return
    raise BadInput(f"{str(target)!r} is not empty: name a new folder")


def _clean(root: Root, keep: Iterable[str]) -> None:
    """Delete what a copy wrote into its unfinished folder, but for the shards of these names."""
    for name in root.files():
        if (_LEFT.fullmatch(name) or _MARKING.fullmatch(name)) and name not in keep:
            root.delete(name)
    uploads.sweep(root.folder, ())


def _copy_last_snapshot(source: Path, target: Root, say: Callable[[str], None]) -> tuple[Manifest, Copied]:
    for number in range(_FREE_TRIES + 1):
        lock = contextlib.nullcontext() if number < _FREE_TRIES else writer_lock(source, "a backup", say=say)
        with lock:
            manifest = Manifest.read(source)
            try:
                return manifest, _copy(Root(source), manifest, target)
            except (OSError, TaprError):
                if number == _FREE_TRIES or Manifest.read(source) == manifest:
                    raise
                say("the gallery was written to meanwhile: going on with its new state")
    raise AssertionError("the last try returns or raises")


def _copy(source: Root, manifest: Manifest, target: Root) -> Copied:
    catalog = open_catalog(source.folder, manifest, wait=True)
    try:
        check_contents(manifest, catalog)
        shards = _rows(source.folder, manifest, catalog)
        names = [uploads.as_stored(source.folder, entry.path) for entry in uploaded(catalog)]
        pictures = catalog.counts()["pictures"]
    finally:
        catalog.close()
    _clean(target, keep=shards)  # of a try before this one
    size = _copied(source, target, catalog_path(source.folder, manifest.snapshot).name)
    for name, rows in shards.items():
        size += _copied_rows(source, target, name, manifest, rows)
    for name in names:
        size += _copied(source, target, name)
    saved = SavedSearchFile(source.folder)
    if saved.exists():
        size += target.write(FILE, [saved.content()])
    with source.open(layout.MANIFEST) as file:
        target.write(_UNFINISHED, [file.read()])
    if Manifest.read(source.folder) != manifest:
        raise TaprError("the gallery was written to meanwhile")
    return Copied(manifest.snapshot, pictures, 2 + len(shards) + len(names) + saved.exists(), size)


def _rows(folder: Path, manifest: Manifest, catalog: Catalog) -> dict[str, int]:
    """The names of the shard files, and how many rows of each are committed."""
    total, generation = catalog.rows_committed(), catalog.generation()
    return {
        shard_path(folder, kind, generation, first // manifest.shard_rows).name: min(manifest.shard_rows, total - first)
        for first in range(0, total, manifest.shard_rows)
        for kind in manifest.kinds()
    }


def _copied(source: Root, target: Root, name: str) -> int:
    with source.open(name) as file:
        return target.write(name, iter(lambda: file.read(_PIECE), b""))


def _copied_rows(source: Root, target: Root, name: str, manifest: Manifest, rows: int) -> int:
    """Copy the committed rows; those after them belong to a run that has not published yet."""
    shape, dtype = manifest.kinds()[name.partition("-")[0]]
    header = npy_header(rows, shape, dtype)
    size = rows * math.prod(shape) * dtype.itemsize
    if target.size(name) == len(header) + size:
        return len(header) + size  # from a try before this one: rows that are committed do not change
    with source.open(name) as file:
        file.seek(header_bytes(file, shape, dtype) or len(header))
        return target.write(name, _with_header(header, file, size))


def _with_header(header: bytes, file: BinaryIO, size: int) -> Iterator[bytes]:
    yield header
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece
