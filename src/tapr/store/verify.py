"""Verify: reads every committed byte of a gallery and reports differences to what was written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from tapr.errors import BadInput, TaprError
from tapr.store import layout, uploads
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import Checksum, FileDigest
from tapr.store.layout import Manifest, catalog_path, npy_header
from tapr.store.saved_searches import SavedSearchFile
from tapr.utils.rooted import OutsideFolder, without_following

_MAX_CHUNK_BYTES = 2**24  # that one checksum may cover: more than any tapr writes
Range = tuple[int, int]  # physical rows [start, stop)


@dataclass(frozen=True)
class Damage:
    """What is wrong with one file."""

    file: str  # its name in the gallery's folder
    reason: str
    rows: tuple[Range, ...] = ()  # damaged rows; empty if it is the header, or not a shard
    kind: str | None = None  # kind of shard; None: the catalogue
    shard: int = -1


@dataclass(frozen=True)
class DamagedUpload:
    """A picture that was put over HTTP and whose only copy is not what was put."""

    id: str
    file: str  # its name in the gallery's folder
    reason: str


@dataclass(frozen=True)
class Verdict:
    """The result of reading all of a gallery."""

    files: int  # files read
    rows: int  # committed rows
    damage: tuple[Damage, ...]
    pictures: tuple[str, ...]  # ids of pictures with damaged vectors
    uploads: tuple[DamagedUpload, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.damage and not self.uploads

    @property
    def first_reason(self) -> str:
        """One file that is damaged, and how."""
        reasons = (f"{part.file} {part.reason}" for parts in (self.damage, self.uploads) for part in parts)
        return next(reasons, "")


def verify(folder: Path) -> Verdict:
    while True:
        manifest = Manifest.read(folder)
        verdict = verify_snapshot(folder, manifest)
        if verdict.is_whole or Manifest.read(folder) == manifest:
            return verdict  # otherwise an index run has just published and deleted old files


def verify_snapshot(folder: Path, manifest: Manifest) -> Verdict:
    """Compare the files with this manifest, whether or not it is the folder's."""
    path = catalog_path(folder, manifest.snapshot)
    damage = []
    try:
        check_catalog(folder, manifest)
    except TaprError as error:
        damage.append(Damage(path.name, str(error)))
    try:
        catalog = Catalog.open(path)
    except (FileNotFoundError, TaprError) as error:
        return Verdict(1, 0, tuple(damage) or (Damage(path.name, str(error)),), ())
    try:
        check_contents(manifest, catalog)
        rows = catalog.rows_committed()
        damage += damaged_files(folder, manifest, catalog)
        saved = SavedSearchFile(folder)
        if reason := saved.damage():
            damage.append(Damage(saved.path.name, f"{reason}: restore it, or delete it and save the searches again"))
        pictures = [
            entry.id
            for start, stop in joined(damage)
            for entry in catalog.by_rows(start, stop)
            if entry.row is not None
        ]
        put = uploaded(catalog)
        files = 1 + len(manifest.kinds()) * math.ceil(rows / manifest.shard_rows) + len(put) + saved.exists()
        return Verdict(files, rows, tuple(damage), tuple(pictures), tuple(damaged_uploads(folder, put)))
    except TaprError as error:  # a catalogue that opens and cannot be read
        return Verdict(1, 0, (*damage, *(() if damage else (Damage(path.name, str(error)),))), ())
    finally:
        catalog.close()


def check_contents(manifest: Manifest, catalog: Catalog) -> None:
    """Refuse a catalogue that tapr did not write, so that what is done for each row of it ends.

    Its checksums must cover its rows once, each no more of them than a chunk has.
    """
    catalog.check_rows()
    total = catalog.rows_committed()
    for kind, (shape, dtype) in manifest.kinds().items():
        longest = max(1, _MAX_CHUNK_BYTES // (math.prod(shape) * dtype.itemsize))
        for first in range(0, total, manifest.shard_rows):
            at, end = 0, min(manifest.shard_rows, total - first)
            for checksum in catalog.checksums(kind, first // manifest.shard_rows):
                if type(checksum.rows) is not int or checksum.start != at or not 0 < checksum.rows <= longest:
                    at = -1
                    break
                at += checksum.rows
            if at != end:
                what = f"the checksums of the catalogue do not cover its rows ({kind})"
                raise TaprError(f"{what}: restore it from a copy, or index the pictures into a new folder")


def uploaded(catalog: Catalog) -> list[Entry]:
    """The pictures that were put one by one, whose files the gallery keeps."""
    return [entry for entry in catalog.entries() if entry.source == uploads.SOURCE]


def damaged_uploads(folder: Path, put: Iterable[Entry]) -> Iterator[DamagedUpload]:
    for entry in put:
        reason = uploads.damage_of(entry.path)
        if reason is not None:
            yield DamagedUpload(entry.id, uploads.as_stored(folder, entry.path), reason)


def check_catalog(folder: Path, manifest: Manifest) -> None:
    """Refuse a published catalogue that is not, byte for byte, the one that was published."""
    path = catalog_path(folder, manifest.snapshot)
    try:
        seal = FileDigest.of(path)
    except FileNotFoundError:
        raise missing_catalog(path) from None
    except OSError as error:
        raise TaprError(f"cannot read the catalogue {path}: {(error.strerror or str(error)).lower()}") from None
    if seal != manifest.catalog:
        raise TaprError(
            f"the catalogue {path} is damaged (its checksum differs), and no other file says which rows are which "
            "pictures: restore it from a copy, or index the pictures into a new folder"
        )


def missing_catalog(path: Path) -> BadInput:
    return BadInput(f"the catalogue {path} is missing: restore it, or index the pictures into a new folder")


def damaged_files(folder: Path, manifest: Manifest, catalog: Catalog, from_row: int = 0) -> list[Damage]:
    """The shard files that do not hold what the catalogue counts. Rows before `from_row` are taken as they are."""
    damage = []
    generation, total = catalog.generation(), catalog.rows_committed()
    for first in range(0, total, manifest.shard_rows):
        rows = min(manifest.shard_rows, total - first)
        if first + rows <= from_row:
            continue
        shard = first // manifest.shard_rows
        for kind, (shape, dtype) in manifest.kinds().items():
            path = layout.shard_path(folder, kind, generation, shard)
            sums = [one for one in catalog.checksums(kind, shard) if first + one.start + one.rows > from_row]
            reasons, hurt = _look_at(path, rows, shape, dtype, sums)
            if reasons:
                ranges = [(first + start, first + stop) for start, stop in merged(hurt)]
                damage.append(Damage(path.name, " and ".join(reasons), tuple(ranges), kind, shard))
    return damage


def _look_at(
    path: Path, rows: int, shape: tuple[int, ...], dtype: np.dtype[Any], sums: list[Checksum]
) -> tuple[list[str], list[Range]]:
    """What is wrong with a shard file, and its damaged rows, counted in the shard."""
    reasons: dict[str, None] = {}  # in the order they are found, each once
    hurt: list[Range] = []
    row_bytes = math.prod(shape) * dtype.itemsize
    try:
        with open(path, "rb", opener=without_following) as file:
            offset = header_bytes(file, shape, dtype)
            if offset is None:
                reasons["has a damaged header"] = None
                offset = len(npy_header(rows, shape, dtype))
            if os.fstat(file.fileno()).st_size < offset + rows * row_bytes:
                reasons[f"is shorter than the {rows:,} rows that were written"] = None
            for chunk in sums:
                reason = _look_at_chunk(file, offset + chunk.start * row_bytes, chunk.rows * row_bytes, chunk)
                if reason:
                    reasons[reason] = None
                    hurt.append((chunk.start, chunk.start + chunk.rows))
    except OutsideFolder:
        return ["is a link, which is not followed"], [(0, rows)]
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({_why(error)})"
        return [reason], [(0, rows)]
    return [reason for reason in reasons if reason != _SHORT], hurt


_SHORT = "short"  # reported once per file


def _look_at_chunk(file: IO[bytes], place: int, size: int, checksum: Checksum) -> str:
    """Return what is wrong with these bytes of a shard file; "": nothing."""
    try:
        file.seek(place)
        # not more than the file has, which a forged gallery may claim
        data = file.read(size) if place + size <= os.fstat(file.fileno()).st_size else b""
    except OSError as error:  # continue after a bad disk block
        return f"cannot be read ({_why(error)})"
    if len(data) < size:
        return _SHORT
    if not checksum.holds_for(np.frombuffer(data, np.uint8)):
        return "does not hold what was written (its checksum differs)"
    return ""


def header_bytes(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> int | None:
    """The length of a .npy header that is what the manifest says; None for any other."""
    try:
        npy.read_magic(file)
        stored, fortran_order, stored_dtype = npy.read_array_header_1_0(file)
    except (ValueError, SyntaxError, TokenError):  # NumPy reads it as Python; one that is cut off ends anyhow
        return None
    good = stored[1:] == shape and stored_dtype == dtype and not fortran_order
    return file.tell() if good else None


def joined(damage: Iterable[Damage]) -> list[Range]:
    """The rows that are damaged in any file."""
    return merged(rows for one in damage for rows in one.rows)


def merged(ranges: Iterable[Range]) -> list[Range]:
    out: list[Range] = []
    for start, stop in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(stop, out[-1][1])
        else:
            out.append((start, stop))
    return out


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
