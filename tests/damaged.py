"""Galleries to be hurt: their pictures, and the ways to look at and change their files."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Evidence
from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest, catalog_path

PAIRS = [(one, other) for one in list(COLOURS)[:6] for other in list(COLOURS)[6:]]  # 36 pictures


class Counting(FakeEncoder):
    encoded = 0

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        self.encoded += len(prepared)
        return super().encode_images(prepared)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".lock")}


def flip(path: Path, place: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def put_nan(path: Path) -> None:
    array = np.load(path, mmap_mode="r+")
    array[3] = np.nan
    array.flush()


def forge(gallery: Path, statement: str, *values: object) -> None:
    """Change the published catalogue, and make its checksum and the manifest's hold again."""
    manifest = Manifest.read(gallery)
    path = catalog_path(gallery, manifest.snapshot)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(gallery)
