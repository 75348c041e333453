"""The pictures that were put into a gallery one by one: their files, kept in a folder inside the gallery.

A file is named after the SHA-256 of its content and its picture's id, so it is never written again with other bytes,
and damage shows. It is the only copy of the picture. The catalogue names it by its place in the gallery: a gallery that
is moved or copied takes its uploads along.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from tapr.images.decode import sha256_of
from tapr.utils.files import sync_folder, write_atomically

FOLDER = "uploads"
SOURCE = "uploads"  # of their entries; those of index runs are absolute paths
_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"II*\0": ".tif", b"MM\0*": ".tif"}


def path_of(folder: Path, id_: str, sha256: str, data: bytes) -> Path:
    """Two ids of one content have a file each: what is deleted with one of them is not the other's."""
    suffix = next((suffix for head, suffix in _SUFFIXES.items() if data.startswith(head)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        suffix = ".webp"
    return folder.absolute() / FOLDER / sha256[:2] / f"{sha256}-{sha256_of(id_.encode())[:16]}{suffix}"


def keep(path: Path, data: bytes) -> None:
    """The file is there, whole, also after a power cut."""
    for parent in (path.parent.parent, path.parent):
        if not parent.is_dir():
            parent.mkdir(exist_ok=True)
            sync_folder(parent.parent)
    write_atomically(path, data)


def sha256_named(path: str | Path) -> str:
    """The checksum that the file's name holds: that of the bytes that were put."""
    return os.path.basename(path).partition("-")[0]


def damage_of(path: str | Path) -> str | None:
    """What is wrong with the file of an upload; None: it holds the bytes that were put."""
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({(error.strerror or str(error)).lower()})"
    return None if found == sha256_named(path) else "does not hold the bytes that were put (its checksum differs)"


def delete(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows does not delete what is being read: an index run tries again
        path.unlink()


def sweep(folder: Path, named: Collection[str]) -> None:
    """Delete the files that no picture names: what a killed write left. Only the holder of the lock may."""
    for place, _, names in os.walk(folder / FOLDER):
        for name in names:
            if os.path.join(os.path.abspath(place), name) not in named:
                delete(Path(place, name))


def as_stored(folder: Path, path: str) -> str:
    """A path as the catalogue holds it."""
    inside = os.path.join(os.path.abspath(folder), FOLDER, "")
    return f"{FOLDER}/{Path(path[len(inside) :]).as_posix()}" if path.startswith(inside) else path


def as_used(folder: Path, stored: str) -> str:
    """And back: every other path is absolute."""
    return os.path.join(os.path.abspath(folder), *stored.split("/")) if stored.startswith(f"{FOLDER}/") else stored
