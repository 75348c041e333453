"""The first stage of a gallery on disk: the folder `first-stage` beside its shards, valid for one snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.prefilter.engine import Engine, FaissEngine, picture_vectors
from tapr.search.prefilter.stage import refuse_elsewhere, top_k_by_stages
from tapr.search.prefilter.summary import RANK, Subspaces, Summary
from tapr.search.topk import TopK
from tapr.store.checksums import FileDigest
from tapr.store.lock import writer_lock
from tapr.utils.files import sync_folder
from tapr.utils.progress import NoProgress, Progress
from tapr.utils.weak_cache import cached_for

FOLDER = "first-stage"
_VERSION = 1
_ABOUT, _ENGINE, _BASIS = "about.json", "engine.faiss", "basis.npy"
_BATCH = 256  # pictures per batch
_SAMPLE = 512  # pictures for fitting the subspaces
_TRAINING = 50_000  # pictures for training the engine


@dataclass(frozen=True, eq=False)
class Prefilter:
    """The first stage of one snapshot of a gallery."""

    summary: Summary
    engine: Engine
    bytes: int  # on disk

    def top_k(self, query: CompiledQuery, bank: Bank, k: int, kernel: Kernel, budget: Budget) -> TopK:
        return top_k_by_stages(query, bank, k, self.summary, self.engine, kernel, budget)


def build(gallery: Gallery, *, directions: int = RANK, progress: Progress | None = None) -> Prefilter:
    """Build it for this snapshot of the gallery; replaces an older one."""
    if gallery.condition is not None:
        raise BadInput("a first stage is made of a whole gallery: open it without a filter")
    if not gallery.row_count:
        raise BadInput(f"the gallery {str(gallery.path)!r} has no pictures yet: index some before its first stage")
    if directions < 1:
        raise BadInput(f"a first stage keeps 1 or more directions per picture, not {directions}")
    refuse_elsewhere(gallery)
    about = _about(gallery)
    FaissEngine.check()
    with writer_lock(gallery.path, "tapr first-stage"):
        for left in gallery.path.glob(f".{FOLDER}.*"):  # left by a killed run
            shutil.rmtree(left, ignore_errors=True)
        made = gallery.path / f".{FOLDER}.{secrets.token_hex(4)}"
        made.mkdir()
        try:
            _write(gallery, made, directions, progress or NoProgress())
            files = {file.name: FileDigest.of(file).model_dump() for file in sorted(made.iterdir())}
            whole = {**about, "directions": directions, "files": files}
            (made / _ABOUT).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
            _put_in_place(made, gallery.path / FOLDER)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return _open(gallery)


def open_prefilter(gallery: Gallery) -> Prefilter:
    """Open it, memory-mapped. Refused if the gallery has changed since it was built."""
    refuse_elsewhere(gallery)
    return cached_for(gallery.stored, "first stage", lambda: _open(gallery))


def _open(gallery: Gallery) -> Prefilter:
    folder, again = gallery.path / FOLDER, f"run tapr first-stage -g {gallery.path}"
    try:
        about = json.loads((folder / _ABOUT).read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(f"the gallery {str(gallery.path)!r} has no first stage: {again}", code="no_prefilter") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the first stage of {str(gallery.path)!r} ({error}): {again}") from None
    if not isinstance(about, dict) or {name: about.get(name) for name in _about(gallery)} != _about(gallery):
        raise BadInput(
            f"the gallery {str(gallery.path)!r} has changed since its first stage was made: {again}",
            code="no_prefilter",
        )
    try:
        # check all files once: the proof depends on the summaries, and every search reads all of them anyway
        damaged = [name for name, seal in about["files"].items() if FileDigest.of(folder / name) != FileDigest(**seal)]
        if damaged:
            raise ValueError(f"{damaged[0]} is not what was written")
        subspaces = Subspaces(np.load(folder / _BASIS))
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in Summary.NAMES}
        if any(len(array) != gallery.row_count for array in arrays.values()):
            raise ValueError("a file has not a row per picture")
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise TaprError(f"cannot use the first stage of {str(gallery.path)!r} ({error}): {again}") from None
    summary = Summary(subspaces, **{name: np.asarray(array) for name, array in arrays.items()})
    engine = FaissEngine.load(folder / _ENGINE)
    return Prefilter(summary, engine, sum(file.stat().st_size for file in folder.iterdir()))


def _about(gallery: Gallery) -> dict[str, Any]:
    """Identifies the snapshot that a first stage belongs to."""
    manifest = gallery.manifest
    if manifest.gallery_id is None or manifest.catalog is None:
        raise BadInput(
            f"the gallery {str(gallery.path)!r} was written by an older tapr: run tapr index -g {gallery.path} once"
        )
    return {
        "version": _VERSION,
        "gallery_id": manifest.gallery_id,
        "catalog": manifest.catalog.sha256,
        "rows": gallery.row_count,
    }


def _write(gallery: Gallery, folder: Path, directions: int, progress: Progress) -> None:
    rows = gallery.row_count
    few = np.unique(np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64))
    subspaces = Subspaces.fitted(gallery.gather(few).decoded(), directions)
    many = np.unique(np.linspace(0, rows - 1, min(rows, _TRAINING)).astype(np.int64))
    lots = (many[start : start + _BATCH] for start in range(0, len(many), _BATCH))
    engine = FaissEngine.trained(np.concatenate([picture_vectors(gallery.gather(lot)) for lot in lots]), rows)
    np.save(folder / _BASIS, subspaces.basis)
    progress.start(rows)
    files: dict[str, np.memmap[Any, Any]] = {}
    for block in gallery.blocks():
        for start in range(0, len(block), _BATCH):
            part = block.take(slice(start, start + _BATCH))
            summary = Summary.of(part.decoded(), subspaces, directions)
            for name, array in summary.arrays.items():
                if name not in files:
                    files[name] = npy.open_memmap(folder / f"{name}.npy", "w+", array.dtype, (rows, *array.shape[1:]))
                files[name][block.start + start : block.start + start + len(part)] = array
            engine.add(picture_vectors(part))
            progress.advance(len(part))
    for file in files.values():
        file.flush()
    engine.save(folder / _ENGINE)


def _put_in_place(made: Path, folder: Path) -> None:
    old = made.with_name(made.name + ".old")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, old)  # a folder with files cannot be replaced
    os.rename(made, folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
