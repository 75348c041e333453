"""The files of a bank: manifest.json and the .npy shards. docs/format.md describes them for other programs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator, model_validator

from tapr.encoders.base import EncoderCard
from tapr.errors import BadInput, TaprError
from tapr.store.block import Block, Precision
from tapr.store.checksums import FileDigest
from tapr.store.summary import outline_type, summary_type
from tapr.utils.files import write_atomically
from tapr.utils.rooted import Root, without_following

FORMAT_VERSION = 7  # of the manifest and of the catalogue; any other is refused
MANIFEST = "manifest.json"
PARTS = ".parts"  # what nodes of a cluster have encoded for an index run that is not finished yet
SHARD_BYTES = 256 * 2**20  # of the largest file of a shard

_MAX_ROW_VALUES = 2**23  # of a picture's local vectors: far above any encoder

_CARD: dict[str, type] = {
    "name": str, "weights_sha256": str, "dim": int, "grid": list, "extractor": str, "image_size": int, "fit": str,
    "template": str, "pixels": str, "arithmetic": str,
}  # fmt: skip
_SUM = "sha256"  # of the manifest without this line
REPAIR = "mend it with tapr repair, or restore it from a copy"  # what to do about a damaged shard
VECTOR_KINDS = GLOBAL, LOCAL, CODES, SCALES, ERRORS = "global", "local", "codes", "scales", "errors"
SUMMARY_KINDS = OUTLINE, SUMMARY, POOLED = "outline", "summary", "pooled"  # of a first stage: summary.py
KINDS = (*VECTOR_KINDS, *SUMMARY_KINDS)
SHARD_NAME, CATALOG_NAME = rf"({'|'.join(KINDS)})-\d+-\d+\.npy", r"catalog-\d+\.sqlite"  # as patterns


class Manifest(BaseModel):
    """What a bank is. Everything that decides its vectors is here, so that unlike banks never mix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = FORMAT_VERSION
    gallery_id: str  # its catalogues carry the same
    encoder: dict[str, Any]  # EncoderCard
    precision: Precision
    shard_rows: int = Field(gt=0)  # physical row r is row r % shard_rows of shard r // shard_rows
    image_mean: list[FiniteFloat] | None = None  # centred banks: taken from every local vector before L2
    text_mean: list[FiniteFloat] | None = None  # and this from every atom's vector
    snapshot: int = Field(ge=0)  # of the catalogue in use
    catalog: FileDigest  # of the catalogue in use
    first_stage: bool = False  # whether rows have summaries
    counts: dict[str, int] = {}  # pictures, failures, rows, when the last index run ended; the catalogue decides

    @field_validator("encoder")
    @classmethod
    def _is_a_card(cls, value: dict[str, Any]) -> dict[str, Any]:
        missing, unknown = set(_CARD) - set(value), set(value) - set(_CARD)
        if missing or unknown:
            raise ValueError(f"{'it lacks' if missing else 'it must not have'} {', '.join(sorted(missing or unknown))}")
        for name, type_ in _CARD.items():
            if not isinstance(value[name], type_):
                raise ValueError(f"{name} is {value[name]!r}")
        grid = value["grid"]
        sides = [value["dim"], *grid]
        if (
            len(grid) != 2
            or any(type(side) is not int or side < 1 for side in sides)
            or (math.prod(sides) > _MAX_ROW_VALUES)
        ):
            raise ValueError(f"dim and grid are {value['dim']!r} and {grid!r}")
        return value

    @model_validator(mode="after")
    def _has_means_of_its_vectors(self) -> Manifest:
        if any(mean is not None and len(mean) != self.encoder["dim"] for mean in (self.image_mean, self.text_mean)):
            raise ValueError("a mean has not as many numbers as the encoder's vectors")
        return self

    @property
    def card(self) -> EncoderCard:
        return EncoderCard.from_dict(self.encoder)

    def kinds(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shard files of this bank: kind -> shape of one row, dtype."""
        m, d = self.card.locals_count, self.card.dim
        out = self.vector_kinds()
        if self.first_stage:
            out |= {
                OUTLINE: ((), outline_type(m, d)),
                SUMMARY: ((), summary_type(m, d)),
                POOLED: ((2 * d,), np.dtype("i1")),
            }
        return out

    def vector_kinds(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Those that hold the vectors themselves."""
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
        value = self.model_dump()
        value[_SUM] = _sum_of(value)
        write_atomically(folder / MANIFEST, (json.dumps(value, indent=2) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        try:
            value = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise no_gallery(folder) from None
        except OSError as error:
            raise BadInput(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
        except (ValueError, RecursionError) as error:
            raise _damaged(path, f"it is not JSON: {' '.join(str(error).split())[:100]}") from None
        version = value.get("format_version") if isinstance(value, dict) else None
        if version != FORMAT_VERSION:
            raise other_version(path, version)
        if value.pop(_SUM, None) != _sum_of(value):
            raise _damaged(path, "its own checksum does not hold")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise _damaged(path, f"{place!r}: {first['msg']}" if place else first["msg"]) from None


def no_gallery(folder: Path) -> BadInput:
    """Return the refusal of a folder that is no gallery."""
    what = f"{str(folder)!r} is not a gallery: make one with tapr index IMAGES -g {folder}"
    return BadInput(what, code="no_gallery")


def other_version(path: Path, version: object) -> BadInput:
    """Return the refusal of a file of another format version."""
    return BadInput(
        f"{path} has format version {str(version)[:20]}, this tapr reads {FORMAT_VERSION}: "
        "use the tapr that made it, or index the pictures into a new folder",
        code="no_gallery",
    )


def _damaged(path: Path, how: str) -> TaprError:
    return TaprError(f"{path} is damaged ({how}): restore it from a copy, or index the pictures into a new folder")


def _sum_of(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def files_named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the files in a gallery's folder whose whole name is of this pattern. No others are ever deleted."""
    return [folder / name for name in Root(folder).files() if pattern.fullmatch(name)]


def block_of(parts: dict[str, NDArray[Any]], start: int = 0) -> Block:
    """Rows of the shard files, by kind."""
    return Block(
        start=start,
        global_vectors=parts[GLOBAL],
        local_vectors=parts.get(LOCAL),
        local_codes=parts.get(CODES),
        local_scales=parts.get(SCALES),
        local_errors=parts.get(ERRORS),
        outlines=parts.get(OUTLINE),
        summaries=parts.get(SUMMARY),
        pooled=parts.get(POOLED),
    )


def shard_rows_for(card: EncoderCard) -> int:
    return max(1, SHARD_BYTES // (card.locals_count * card.dim * 2))


def shard_path(folder: Path, kind: str, generation: int, shard: int) -> Path:
    return folder / f"{kind}-{generation}-{shard:05d}.npy"


def catalog_path(folder: Path, snapshot: int) -> Path:
    return folder / f"catalog-{snapshot}.sqlite"


class GrowingArray:
    """A .npy file that grows by whole rows. Data first, header after: numpy can read it at any moment."""

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: np.dtype[Any], keep_rows: int) -> None:
        """Open or make the file and cut it to `keep_rows`: rows past that were never committed."""
        self._row_shape, self._dtype = row_shape, dtype
        self._row_bytes = int(np.prod(row_shape)) * dtype.itemsize
        self.rows = keep_rows
        header = npy_header(keep_rows, row_shape, dtype)
        self._offset = len(header)
        size = self._offset + keep_rows * self._row_bytes
        if keep_rows and (path.stat().st_size if path.exists() else 0) < size:
            # growing the file would fill the lost rows with zeros
            raise TaprError(f"{path} is shorter than the {keep_rows:,} rows that were written: {REPAIR}")
        mode = "r+b" if path.exists() else "x+b"
        self._file: IO[bytes] = open(path, mode, opener=without_following)  # noqa: SIM115 (closed by `close`)
        try:
            self._write(header)
            self._file.truncate(size)
        except BaseException:  # such as a full disk
            self.close()
            raise

    def append(self, rows: NDArray[Any]) -> None:
        assert (rows.shape[1:], rows.dtype) == (self._row_shape, self._dtype), (rows.shape, rows.dtype)
        self._file.seek(self._offset + self.rows * self._row_bytes)
        self._file.write(np.ascontiguousarray(rows).tobytes())
        self.rows += len(rows)

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._write(npy_header(self.rows, self._row_shape, self._dtype))
        self._file.flush()

    def close(self) -> None:
        """What was not flushed is lost, and was not counted: a full disk must not get in the way of closing."""
        with contextlib.suppress(OSError):
            self._file.close()

    def last(self, rows: int) -> NDArray[Any]:
        """The last rows as they are on disk."""
        self._file.seek(self._offset + (self.rows - rows) * self._row_bytes)
        data = self._file.read(rows * self._row_bytes)
        return np.frombuffer(data, self._dtype).reshape(rows, *self._row_shape)

    def _write(self, header: bytes) -> None:
        self._file.seek(0)
        self._file.write(header)


def npy_header(rows: int, row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """NumPy pads the header for a growing first axis, so that it keeps its length: a test holds it to that."""
    buffer = io.BytesIO()
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *row_shape)}
    npy.write_array_header_1_0(buffer, header)
    return buffer.getvalue()
