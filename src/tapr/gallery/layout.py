"""The files of a bank: manifest.json and the .npy shards. docs/format.md describes them for other programs."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from tapr.encoders.base import EncoderCard
from tapr.errors import BadInput, TaprError
from tapr.files import write_atomically
from tapr.gallery.block import Precision

FORMAT_VERSION = 3  # 2 had one catalogue, written in place, without types; 1 also had codes that were not turned
MANIFEST = "manifest.json"
SHARD_BYTES = 256 * 2**20  # of the largest file of a shard

KINDS = GLOBAL, LOCAL, CODES, SCALES, ERRORS = "global", "local", "codes", "scales", "errors"


class Manifest(BaseModel):
    """What a bank is. Everything that decides its vectors is here, so that unlike banks never mix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int
    encoder: dict[str, Any]  # EncoderCard
    precision: Precision
    shard_rows: int  # physical row r is row r % shard_rows of shard r // shard_rows
    image_mean: list[float] | None = None  # centred banks: taken from every local vector before L2
    text_mean: list[float] | None = None  # and this from every atom's vector
    snapshot: int | None = None  # the number of the catalogue in use; None before format version 3
    counts: dict[str, int] = {}  # pictures, failures, rows, when the last index run ended; the catalogue decides

    @property
    def card(self) -> EncoderCard:
        return EncoderCard.from_dict(self.encoder)

    def kinds(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shard files of this bank: kind -> shape of one row, dtype."""
        m, d = self.card.locals_count, self.card.dim
        out: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {GLOBAL: ((d,), np.dtype("<f2"))}
        if self.precision in ("fp16", "both"):
            out[LOCAL] = ((m, d), np.dtype("<f2"))
        if self.precision in ("int8", "both"):
            out[CODES] = ((m, d), np.dtype("i1"))
            out[SCALES] = ((m,), np.dtype("<f4"))
            out[ERRORS] = ((m,), np.dtype("<f4"))
        return out

    def row_bytes(self) -> int:
        return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.kinds().values())

    def write(self, folder: Path) -> None:
        write_atomically(folder / MANIFEST, (json.dumps(self.model_dump(), indent=2) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        try:
            value = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise BadInput(f"{str(folder)!r} is not a gallery: make one with tapr index IMAGES -g {folder}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"cannot read {path}: {error}") from None
        version = value.get("format_version") if isinstance(value, dict) else None
        if version not in (2, FORMAT_VERSION) and not (version == 1 and value.get("precision") == "fp16"):
            raise BadInput(
                f"{path} has format version {version!r}, this tapr reads 2 and {FORMAT_VERSION}: "
                "index the pictures into a new folder"
            )
        try:
            manifest = cls.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise BadInput(
                f"{path} is damaged at {place!r} ({first['msg']}): index the pictures into a new folder"
            ) from None
        if (manifest.snapshot is None) != (version < FORMAT_VERSION):
            raise BadInput(f"{path} is damaged at 'snapshot': index the pictures into a new folder")
        return manifest


def shard_rows_for(card: EncoderCard) -> int:
    return max(1, SHARD_BYTES // (card.locals_count * card.dim * 2))


def shard_path(folder: Path, kind: str, generation: int, shard: int) -> Path:
    return folder / f"{kind}-{generation}-{shard:05d}.npy"


def catalog_path(folder: Path, snapshot: int | None) -> Path:
    return folder / ("catalog.sqlite" if snapshot is None else f"catalog-{snapshot}.sqlite")


class GrowingArray:
    """A .npy file that grows by whole rows. Data first, header after: numpy can read it at any moment."""

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: np.dtype[Any], keep_rows: int) -> None:
        """Open or make the file and cut it to `keep_rows`: rows past that were never committed."""
        self._row_shape, self._dtype = row_shape, dtype
        self._row_bytes = int(np.prod(row_shape)) * dtype.itemsize
        self.rows = keep_rows
        header = self._header()
        self._offset = len(header)
        size = self._offset + keep_rows * self._row_bytes
        if keep_rows and (path.stat().st_size if path.exists() else 0) < size:
            # growing the file would fill the lost rows with zeros
            raise TaprError(f"{path} is shorter than the {keep_rows:,} rows that were written: restore it")
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "x+b")
        self._write(header)
        self._file.truncate(size)

    def append(self, rows: NDArray[Any]) -> None:
        assert rows.shape[1:] == self._row_shape, (rows.shape, self._row_shape)
        self._file.seek(self._offset + self.rows * self._row_bytes)
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())
        self.rows += len(rows)

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._write(self._header())
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _header(self) -> bytes:
        """NumPy pads the header for a growing first axis, so that it keeps its length: a test holds it to that."""
        buffer = io.BytesIO()
        header = {
            "descr": npy.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self.rows, *self._row_shape),
        }
        npy.write_array_header_1_0(buffer, header)
        return buffer.getvalue()

    def _write(self, header: bytes) -> None:
        self._file.seek(0)
        self._file.write(header)
