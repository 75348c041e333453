"""The vectors of a bank on disk: read memory-mapped, written by appending."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tapr.encoders.base import Evidence
from tapr.errors import TaprError
from tapr.gallery import layout
from tapr.gallery.catalog import Catalog
from tapr.gallery.codec import check_lengths, quantise
from tapr.gallery.layout import GrowingArray, Manifest


class ShardReader:
    """The vectors on disk, memory-mapped, as committed up to `rows`.

    Every file is mapped at once: it then stays readable when a later index run deletes it. A file that is missing, or
    shorter than its committed rows, is refused here, before anything is read from it or added to it.
    """

    def __init__(self, folder: Path, manifest: Manifest, generation: int, rows: int) -> None:
        self._manifest, self.rows = manifest, rows
        self._maps: dict[tuple[str, int], NDArray[Any]] = {}
        for shard, (start, stop) in enumerate(self.spans()):
            for kind, (shape, dtype) in manifest.kinds().items():
                path = layout.shard_path(folder, kind, generation, shard)
                self._maps[kind, shard] = _mapped(path, (stop - start, *shape), dtype)

    def parts(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Rows start..stop of one shard, as views of the mapped files."""
        shard, offset = divmod(start, self._manifest.shard_rows)
        return {kind: self._maps[kind, shard][offset : offset + stop - start] for kind in self._manifest.kinds()}

    def gather_parts(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Copies of these rows, in this order."""
        kinds = self._manifest.kinds()
        out = {kind: np.empty((len(rows), *shape), dtype) for kind, (shape, dtype) in kinds.items()}
        shards, offsets = np.divmod(rows, self._manifest.shard_rows)
        for shard in np.unique(shards):
            here = np.flatnonzero(shards == shard)
            for kind, array in out.items():
                array[here] = self._maps[kind, int(shard)][offsets[here]]
        return out

    def spans(self) -> Iterator[tuple[int, int]]:
        """The row range of each shard."""
        for start in range(0, self.rows, self._manifest.shard_rows):
            yield start, min(start + self._manifest.shard_rows, self.rows)


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The first rows of a .npy file. How many it holds is told by its size: a header may be older than the rows."""
    try:
        with path.open("rb") as file:
            npy.read_magic(file)
            stored, fortran_order, stored_dtype = npy.read_array_header_1_0(file)
            needed = file.tell() + math.prod(shape) * dtype.itemsize
            if stored[1:] != shape[1:] or stored_dtype != dtype or fortran_order:
                raise ValueError("its header is not what the manifest says")
            if os.fstat(file.fileno()).st_size < needed:
                raise ValueError(f"it is shorter than the {shape[0]:,} rows that were written")
            array = np.memmap(file, dtype, "r", file.tell(), shape)
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else error
        raise TaprError(
            f"cannot use {path} ({reason}): restore it from a copy, or index the pictures into a new folder"
        ) from None
    return np.asarray(array)  # still mapped; slices of a memmap are slow to make


class ShardWriter:
    """Appends rows to the shard files; a row counts only once `commit` has put it into the catalogue."""

    def __init__(self, folder: Path, manifest: Manifest, catalog: Catalog, generation: int | None = None) -> None:
        self._folder, self._manifest, self._catalog = folder, manifest, catalog
        self._generation = catalog.generation() if generation is None else generation
        self.rows = catalog.rows_committed() if generation is None else 0
        self._arrays: dict[str, GrowingArray] = {}
        self._open()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, evidence: Evidence) -> int:
        """-> the physical row of the first."""
        local = evidence.local_vectors.astype(np.float16, copy=False)
        check_lengths(local)
        parts: dict[str, NDArray[Any]] = {layout.GLOBAL: evidence.global_vectors.astype(np.float16, copy=False)}
        kinds = self._manifest.kinds()
        if layout.LOCAL in kinds:
            parts[layout.LOCAL] = local
        if layout.CODES in kinds:
            parts[layout.CODES], parts[layout.SCALES], parts[layout.ERRORS] = quantise(local)
        return self.append_parts(parts)

    def append_parts(self, parts: dict[str, NDArray[Any]]) -> int:
        first, done, total = self.rows, 0, len(parts[layout.GLOBAL])
        while done < total:
            if self.rows % self._manifest.shard_rows == 0 and self.rows:
                self._flush()
                self._close()
                self._open()
            room = self._manifest.shard_rows - self.rows % self._manifest.shard_rows
            step = min(room, total - done)
            for kind, array in self._arrays.items():
                array.append(parts[kind][done : done + step])
            self.rows += step
            done += step
        return first

    def commit(self) -> None:
        self._flush()
        self._catalog.set_state("rows", self.rows)
        self._catalog.set_state("generation", self._generation)
        self._catalog.commit()

    def _open(self) -> None:
        shard, keep = divmod(self.rows, self._manifest.shard_rows)
        for kind, (shape, dtype) in self._manifest.kinds().items():
            path = layout.shard_path(self._folder, kind, self._generation, shard)
            self._arrays[kind] = GrowingArray(path, shape, dtype, keep)

    def _flush(self) -> None:
        for array in self._arrays.values():
            array.flush()

    def _close(self) -> None:
        for array in self._arrays.values():
            array.close()
