"""The vectors of a bank on disk: read memory-mapped, written by appending."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tapr.encoders.base import Evidence
from tapr.errors import BadInput, TaprError
from tapr.store import layout
from tapr.store.catalog import FIRST_STAGE, Catalog
from tapr.store.checksums import Checksum, RunningSum
from tapr.store.codec import as_stored, check_lengths, quantise, usable
from tapr.store.layout import REPAIR, GrowingArray, Manifest, block_of
from tapr.store.summary import WORTH, Subspaces, Summariser


class ShardReader:
    """The vectors on disk, memory-mapped, as committed by the catalogue.

    Every file is mapped at once: it then stays readable when a later index run deletes it. A file that is missing, or
    shorter than its committed rows, or whose last megabyte is not what was written, is refused here, before anything
    is read from it or added to it. verify.py looks at all of it.
    """

    def __init__(self, folder: Path, manifest: Manifest, catalog: Catalog) -> None:
        self._manifest, self.rows = manifest, catalog.rows_committed()
        self._files: dict[tuple[str, int], _Mapped] = {}
        self._kinds = manifest.kinds()
        for kind in self._kinds:
            if catalog.rows_summed(kind) != self.rows:
                raise TaprError(f"the catalogue of {folder} has not the checksums of its {self.rows:,} rows: {REPAIR}")
        generation = catalog.generation()
        for shard, (start, stop) in enumerate(self.spans()):
            for kind, (shape, dtype) in self._kinds.items():
                path = layout.shard_path(folder, kind, generation, shard)
                last = catalog.last_checksum(kind, shard)
                self._files[kind, shard] = _mapped(path, (stop - start, *shape), dtype, last)

    def parts(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Rows start..stop of one shard, as views of the mapped files."""
        shard, offset = divmod(start, self._manifest.shard_rows)
        return {kind: self._files[kind, shard].array()[offset : offset + stop - start] for kind in self._kinds}

    def gather_parts(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Copies of these rows, in this order."""
        out = {kind: np.empty((len(rows), *shape), dtype) for kind, (shape, dtype) in self._kinds.items()}
        shards, offsets = np.divmod(rows, self._manifest.shard_rows)
        for shard in np.unique(shards):
            here = np.flatnonzero(shards == shard)
            for kind, array in out.items():
                array[here] = self._files[kind, int(shard)].array()[offsets[here]]
        return out

    def spans(self) -> Iterator[tuple[int, int]]:
        """The row range of each shard."""
        for start in range(0, self.rows, self._manifest.shard_rows):
            yield start, min(start + self._manifest.shard_rows, self.rows)


@dataclass(frozen=True, eq=False)
class _Mapped:
    path: Path
    rows: NDArray[Any]
    map: mmap.mmap
    needed: int  # bytes

    def array(self) -> NDArray[Any]:
        """The rows. Checks the file's size first, because reading a map past the end of a truncated file kills the
        process.
        """
        if self.map.size() < self.needed:
            raise TaprError(f"{self.path} was cut short while it was in use: {REPAIR}")
        return self.rows


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], last: Checksum | None) -> _Mapped:
    """Map the first rows of a .npy file. Its size decides how many it holds, since the header may be older."""
    try:
        with path.open("rb") as file:
            npy.read_magic(file)
            stored, fortran_order, stored_dtype = npy.read_array_header_1_0(file)
            offset = file.tell()
            needed = offset + math.prod(shape) * dtype.itemsize
            if stored[1:] != shape[1:] or stored_dtype != dtype or fortran_order:
                raise ValueError("its header is not what the manifest says")
            if os.fstat(file.fileno()).st_size < needed:
                raise ValueError(f"it is shorter than the {shape[0]:,} rows that were written")
            row_bytes = math.prod(shape[1:]) * dtype.itemsize
            if last is not None:
                file.seek(offset + last.start * row_bytes)
                if not last.holds_for(np.frombuffer(file.read(last.rows * row_bytes), np.uint8)):
                    raise ValueError("it does not hold what was written: its checksum differs")
            array = np.memmap(file, dtype, "r", offset, shape)
    except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:  # NumPy reads headers as Python
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else error
        raise TaprError(f"cannot use {path} ({reason}): {REPAIR}") from None
    map_: mmap.mmap = array._mmap  # type: ignore[attr-defined]
    return _Mapped(path, np.asarray(array), map_, needed)  # asarray: slices of a memmap are slow to make


@dataclass(frozen=True)
class StoredEvidence(Evidence):
    """Vectors that are already in the format of the shard files."""

    parts: Mapping[str, NDArray[Any]]  # by kind


class ShardWriter:
    """Appends rows to the shard files. A row exists only after `commit` has stored it in the catalogue."""

    def __init__(self, folder: Path, manifest: Manifest, catalog: Catalog, generation: int | None = None) -> None:
        self._folder, self._manifest, self._catalog = folder, manifest, catalog
        self._generation = catalog.generation() if generation is None else generation
        self.rows = catalog.rows_committed() if generation is None else 0
        self._arrays: dict[str, GrowingArray] = {}
        self._sums: dict[str, RunningSum] = {}
        self._new_sums: list[Checksum] = []
        if generation is not None:
            catalog.forget_checksums(layout.KINDS)
        try:
            if self.rows % manifest.shard_rows:
                self._open()
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, evidence: Evidence) -> int:
        """Append rows. Returns the physical row of the first."""
        parts = parts_of(evidence, self._manifest)
        if self._manifest.first_stage:
            parts |= summary_parts(parts, self._summariser)
        return self.append_parts(parts)

    @cached_property
    def _summariser(self) -> Summariser:
        return summariser_in(self._catalog)

    def append_parts(self, parts: dict[str, NDArray[Any]]) -> int:
        first, done, total = self.rows, 0, len(parts[layout.GLOBAL])
        while done < total:
            if self.rows % self._manifest.shard_rows == 0:
                self._flush()
                self._close()
                self._open()
            room = self._manifest.shard_rows - self.rows % self._manifest.shard_rows
            step = min(room, total - done)
            for kind, array in self._arrays.items():
                array.append(parts[kind][done : done + step])
                self._sums[kind].add(parts[kind][done : done + step])
            self.rows += step
            done += step
        return first

    def commit(self) -> None:
        self._flush()
        self._catalog.put_checksums(self._new_sums)
        self._catalog.set_state("rows", self.rows)
        self._catalog.set_state("generation", self._generation)
        self._catalog.commit()
        self._new_sums = []

    def _open(self) -> None:
        shard, keep = divmod(self.rows, self._manifest.shard_rows)
        for kind, (shape, dtype) in self._manifest.kinds().items():
            path = layout.shard_path(self._folder, kind, self._generation, shard)
            array = self._arrays[kind] = GrowingArray(path, shape, dtype, keep)
            last = self._catalog.last_checksum(kind, shard) if keep else None
            if keep and (last is None or not 0 < last.rows <= keep):
                raise TaprError(f"the catalogue has no checksums of {path}: {REPAIR}")
            begun = None if last is None else array.last(last.rows)
            if last is not None and begun is not None and not last.holds_for(begun):
                raise TaprError(f"{path} does not hold what was written (its checksum differs): {REPAIR}")
            row_bytes = math.prod(shape) * dtype.itemsize
            self._sums[kind] = RunningSum(kind, shard, row_bytes, last.start if last else 0, begun)

    def _flush(self) -> None:
        for kind, array in self._arrays.items():
            array.flush()
            self._new_sums += self._sums[kind].take()

    def _close(self) -> None:
        for array in self._arrays.values():
            array.close()
        self._arrays, self._sums = {}, {}


def parts_of(evidence: Evidence, manifest: Manifest) -> dict[str, NDArray[Any]]:
    """Convert vectors to the format of the shard files. Vectors that are not finite or longer than 1 are refused."""
    if isinstance(evidence, StoredEvidence):
        return dict(evidence.parts)
    global_vectors, local = as_stored(evidence.global_vectors), as_stored(evidence.local_vectors)
    if not usable(global_vectors).all():
        raise BadInput("the encoder gave a global vector that is not finite: it must give vectors of length 1")
    check_lengths(local)
    return {layout.GLOBAL: global_vectors, **local_parts(local, manifest)}


def local_parts(local: NDArray[np.float16], manifest: Manifest) -> dict[str, NDArray[Any]]:
    """The same for local vectors only; codes are computed from them."""
    kinds = manifest.vector_kinds()
    parts: dict[str, NDArray[Any]] = {layout.LOCAL: local} if layout.LOCAL in kinds else {}
    if layout.CODES in kinds:
        parts[layout.CODES], parts[layout.SCALES], parts[layout.ERRORS] = quantise(local)
    return parts


def summary_parts(parts: Mapping[str, NDArray[Any]], summariser: Summariser) -> dict[str, NDArray[Any]]:
    """The rows of a first stage, from what is stored of the vectors."""
    block = block_of(dict(parts))
    rows = summariser.of(block.global_vectors, block.decoded())
    return {layout.OUTLINE: rows.outlines, layout.SUMMARY: rows.summaries, layout.POOLED: rows.pooled}


LONGEST = 0.5  # a summary longer than this part of the vectors is of no use: those of an encoder with few local ones


def lacks_first_stage(manifest: Manifest, catalog: Catalog) -> bool:
    """Return whether it has none and should: that was asked for or, if nothing was said, the gallery is large."""
    rows, wished = catalog.rows_committed(), catalog.get_state(FIRST_STAGE)
    if manifest.first_stage or not rows:
        return False
    if wished is not None:
        return bool(wished)
    longer = manifest.model_copy(update={"first_stage": True}).row_bytes() - manifest.row_bytes()
    return rows >= WORTH and longer <= LONGEST * manifest.row_bytes()


_BASIS = "basis"  # state key: the subspaces of the summaries


def keep_subspaces(catalog: Catalog, subspaces: Subspaces) -> None:
    catalog.set_state(_BASIS, subspaces.to_text())


def summariser_in(catalog: Catalog) -> Summariser:
    text = catalog.get_state(_BASIS)
    if text is None:
        raise TaprError("the catalogue does not hold the basis of the gallery's first stage: restore it from a copy")
    return Summariser(Subspaces.from_text(text))
