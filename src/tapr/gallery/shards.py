"""The vectors of a bank on disk: read memory-mapped, written by appending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Evidence
from tapr.errors import TaprError
from tapr.gallery import layout
from tapr.gallery.catalog import Catalog
from tapr.gallery.codec import check_lengths, quantise
from tapr.gallery.layout import GrowingArray, Manifest


class ShardReader:
    """The vectors on disk, memory-mapped, as committed up to `rows`."""

    def __init__(self, folder: Path, manifest: Manifest, generation: int, rows: int) -> None:
        self._folder, self._manifest, self._generation, self.rows = folder, manifest, generation, rows
        self._maps: dict[tuple[str, int], NDArray[Any]] = {}

    def parts(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Rows start..stop of one shard, as views of the mapped files."""
        shard, offset = divmod(start, self._manifest.shard_rows)
        return {kind: self._mapped(kind, shard)[offset : offset + stop - start] for kind in self._manifest.kinds()}

    def gather_parts(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Copies of these rows, in this order."""
        kinds = self._manifest.kinds()
        out = {kind: np.empty((len(rows), *shape), dtype) for kind, (shape, dtype) in kinds.items()}
        shards, offsets = np.divmod(rows, self._manifest.shard_rows)
        for shard in np.unique(shards):
            here = np.flatnonzero(shards == shard)
            for kind, array in out.items():
                array[here] = self._mapped(kind, int(shard))[offsets[here]]
        return out

    def spans(self) -> Iterator[tuple[int, int]]:
        """The row range of each shard."""
        for start in range(0, self.rows, self._manifest.shard_rows):
            yield start, min(start + self._manifest.shard_rows, self.rows)

    def _mapped(self, kind: str, shard: int) -> NDArray[Any]:
        if (kind, shard) not in self._maps:
            path = layout.shard_path(self._folder, kind, self._generation, shard)
            try:
                array = np.asarray(np.load(path, mmap_mode="r"))  # still mapped; slices of a memmap are slow to make
            except (OSError, ValueError) as error:
                raise TaprError(f"cannot read {path} ({error}): restore it, or index the pictures again") from None
            shape, dtype = self._manifest.kinds()[kind]
            needed = min(self.rows - shard * self._manifest.shard_rows, self._manifest.shard_rows)
            if array.shape[1:] != shape or array.dtype != dtype or len(array) < needed:
                raise TaprError(f"{path} does not hold what the manifest says: restore it, or index the pictures again")
            self._maps[kind, shard] = array
        return self._maps[kind, shard]


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
        local = evidence.local_vectors.astype(np.float16)
        check_lengths(local)
        parts: dict[str, NDArray[Any]] = {layout.GLOBAL: evidence.global_vectors.astype(np.float16)}
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
