"""Access to shard files: memory-mapped from a folder, or fetched from object storage with fsspec."""

from __future__ import annotations

import io
import math
import os
import shutil
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tapr.errors import BadInput, TaprError
from tapr.store import layout
from tapr.store.layout import Manifest
from tapr.utils.extras import install_hint

_HEAD = 1024  # bytes read for the header; our .npy headers have 128


class Files(Protocol):
    """The files of one folder."""

    def head(self, name: str) -> tuple[bytes, int]:
        """The first bytes of a file, and its size."""

    def data(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """A range of bytes."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one step: readers never see a partial one."""

    def names(self) -> list[str]: ...

    def remove(self, name: str) -> None: ...

    def clear(self) -> None:
        """Remove all files and the folder."""


def is_url(location: object) -> bool:
    return "://" in str(location)


def files_at(location: str | Path) -> Files:
    return RemoteFiles(str(location)) if is_url(location) else LocalFiles(Path(location))


class LocalFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def head(self, name: str) -> tuple[bytes, int]:
        with (self.folder / name).open("rb") as file:
            return file.read(_HEAD), os.fstat(file.fileno()).st_size

    def data(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """Mapped, not read."""
        return np.asarray(np.memmap(self.folder / name, np.uint8, "r", start, (stop - start,)))

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        from tapr.utils.files import write_atomically

        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, data)

    def names(self) -> list[str]:
        return sorted(item.name for item in self.folder.iterdir() if item.is_file()) if self.folder.is_dir() else []

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class RemoteFiles:
    """s3://bucket/path, gs://bucket/path and whatever else fsspec supports. Keys and endpoints come from the
    environment.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            import fsspec
        except ImportError:
            raise BadInput(f"galleries on object storage need fsspec: {install_hint('ray')}") from None
        try:
            # no cached listings: another machine may have written since
            self._system, self._path = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise BadInput(f"cannot use {self.url}: {error}") from None

    def head(self, name: str) -> tuple[bytes, int]:
        size = int(self._system.info(self._of(name))["size"])
        return self._system.cat_file(self._of(name), start=0, end=min(_HEAD, size)), size

    def data(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._system.cat_file(self._of(name), start=start, end=stop), np.uint8)

    def read(self, name: str) -> bytes:
        return bytes(self._system.cat_file(self._of(name)))

    def write(self, name: str, data: bytes) -> None:
        self._system.pipe_file(self._of(name), data)

    def names(self) -> list[str]:
        try:
            found = self._system.ls(self._path, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(item["name"].rpartition("/")[2] for item in found if item["type"] == "file")

    def remove(self, name: str) -> None:
        self._system.rm_file(self._of(name))

    def clear(self) -> None:
        for name in self.names():
            self.remove(name)

    def download(self, name: str, folder: Path) -> None:
        self._system.get_file(self._of(name), str(folder / name))

    def upload(self, path: Path) -> None:
        self._system.put_file(str(path), self._of(path.name))

    def _of(self, name: str) -> str:
        return f"{self._path}/{name}"


def rows_of(files: Files, manifest: Manifest, kind: str, generation: int, start: int, stop: int) -> list[NDArray[Any]]:
    """Physical rows start..stop of one kind, as one array per shard file."""
    shape, dtype = manifest.kinds()[kind]
    row_bytes = math.prod(shape) * dtype.itemsize
    out = []
    for shard in range(start // manifest.shard_rows, -(-stop // manifest.shard_rows)):
        before = shard * manifest.shard_rows
        first, last = max(start, before) - before, min(stop, before + manifest.shard_rows) - before
        name = layout.shard_path(Path(), kind, generation, shard).name
        try:
            head, size = files.head(name)
            offset = _offset(head, shape, dtype)
            if size < offset + last * row_bytes:
                raise ValueError(f"it is shorter than the {last:,} rows that were written")
            raw = files.data(name, offset + first * row_bytes, offset + last * row_bytes)
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else (error.strerror or str(error)).lower()
            raise TaprError(
                f"cannot use {name} of the gallery ({reason}): can this node read all of its files?"
            ) from None
        out.append(raw.view(dtype).reshape(last - first, *shape))
    return out


def _offset(head: bytes, shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """The offset of the first row in a .npy file."""
    file = io.BytesIO(head)
    npy.read_magic(file)
    stored, fortran_order, stored_dtype = npy.read_array_header_1_0(file)
    if tuple(stored[1:]) != tuple(shape) or stored_dtype != dtype or fortran_order:
        raise ValueError("its header is not what the manifest says")
    return file.tell()


@dataclass(frozen=True, eq=False)
class DownloadedFiles:
    """Downloaded files of a gallery on object storage. Their folder is deleted together with this object."""

    folder: Path

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.folder.parent, ignore_errors=True)


def remote_manifest(url: str) -> Manifest:
    with TemporaryDirectory(prefix="tapr-") as folder:
        RemoteFiles(url).download(layout.MANIFEST, Path(folder))
        return Manifest.read(Path(folder))


def small_files(url: str) -> DownloadedFiles:
    """Download manifest and catalogue: everything except vectors."""
    files = RemoteFiles(url)
    copied = DownloadedFiles(Path(mkdtemp(prefix="tapr-"), files.url.rpartition("/")[2]))
    folder = copied.folder
    folder.mkdir()
    try:
        while True:
            files.download(layout.MANIFEST, folder)
            manifest = Manifest.read(folder)
            try:
                files.download(layout.catalog_path(Path(), manifest.snapshot).name, folder)
                return copied
            except FileNotFoundError:
                files.download(layout.MANIFEST, folder)
                if Manifest.read(folder) == manifest:
                    raise  # otherwise an index run has just published
    except FileNotFoundError:
        raise BadInput(f"{url!r} is not a gallery: make one with tapr index IMAGES -g {url} --ray ADDRESS") from None
    except OSError as error:
        raise BadInput(f"cannot read {url} ({error}): check the address and the keys in the environment") from None
