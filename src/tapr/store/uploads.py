"""The pictures that were put into a gallery one by one: their files, kept in a folder inside the gallery.

A file is named after the SHA-256 of its content and its picture's id, so it is never written again with other bytes,
and damage shows. It is the only copy of the picture. The catalogue names it by its place in the gallery: a gallery that
is moved or copied takes its uploads along. Files of other names are not ours: they are neither read nor deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from tapr.images.decode import sha256_of
from tapr.utils.rooted import OutsideFolder, Root

FOLDER = "uploads"
SOURCE = "uploads"  # of their entries; those of index runs are absolute paths
_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"II*\0": ".tif", b"MM\0*": ".tif"}
_FILE = r"[0-9a-f]{64}-[0-9a-f]{16}(\.[a-z]{3,4})?"
_PLACE = re.compile(rf"{FOLDER}/[0-9a-f]{{2}}/{_FILE}")
_SWEPT = re.compile(rf"{_FILE}|\.{_FILE}\.[0-9a-f]{{8}}")  # the latter: not finished when its program was killed


def path_of(folder: Path, id_: str, sha256: str, data: bytes) -> Path:
    """Two ids of one content have a file each: what is deleted with one of them is not the other's."""
    suffix = next((suffix for head, suffix in _SUFFIXES.items() if data.startswith(head)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        suffix = ".webp"
    return folder.absolute() / FOLDER / sha256[:2] / f"{sha256}-{sha256_of(id_.encode())[:16]}{suffix}"


def keep(path: str | Path, data: bytes) -> None:
    """Write the file whole, so that it is there after a power cut."""
    root, name = _rooted(path)
    root.write(name, [data])


def sha256_named(path: str | Path) -> str:
    """Return the checksum that the file's name holds: that of the bytes that were put."""
    return os.path.basename(path).partition("-")[0]


def damage_of(path: str | Path) -> str | None:
    """Return what is wrong with the file of an upload; None: it holds the bytes that were put."""
    try:
        root, name = _rooted(path)
        with root.open(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OutsideFolder:
        return "is a link, or behind one, which is not followed"
    except OSError as error:
        return f"cannot be read ({(error.strerror or str(error)).lower()})"
    return None if digest == sha256_named(path) else "does not hold the bytes that were put (its checksum differs)"


def delete(path: str | Path) -> None:
    root, name = _rooted(path)
    with contextlib.suppress(OSError):  # Windows does not delete what is being read: an index run tries again
        root.delete(name)


def sweep(folder: Path, named: Collection[str]) -> None:
    """Delete the files that no picture names: what a killed write left. Only the holder of the lock may."""
    root = Root(folder)
    with contextlib.suppress(OutsideFolder):  # a link in place of the folder: nothing there was written by tapr
        for part in root.folders(FOLDER):
            for file in root.files(f"{FOLDER}/{part}"):
                path = os.path.join(os.path.abspath(folder), FOLDER, part, file)
                if _SWEPT.fullmatch(file) and path not in named:
                    with contextlib.suppress(OSError):  # as in `delete`
                        root.delete(f"{FOLDER}/{part}/{file}")


def _rooted(path: str | Path) -> tuple[Root, str]:
    """Return the gallery's folder, and the place of an upload's file in it. Refuse any other path."""
    path = Path(path)
    return Root(path.parents[2] if len(path.parts) > 3 else path), checked_name("/".join(path.parts[-3:]))


def checked_name(stored: str) -> str:
    """Return the place of an upload's file as the catalogue holds it, if it is one that tapr writes."""
    if not _PLACE.fullmatch(stored):
        raise OutsideFolder(
            f"{stored[:200]!r} is not the file of an uploaded picture: the gallery is damaged, or forged"
        )
    return stored


def _below(folder: Path, path: str) -> str:
    inside = os.path.join(os.path.abspath(folder), "")
    return path[len(inside) :].replace(os.sep, "/") if path.startswith(inside) else ""


def as_stored(folder: Path, path: str) -> str:
    """Return a path as the catalogue holds it: that of an upload relative to the gallery, any other absolute."""
    name = _below(folder, path)
    return name if _PLACE.fullmatch(name) else path


def as_used(folder: Path, stored: str) -> str:
    """Return the path of a file from what the catalogue holds."""
    if not stored.startswith(f"{FOLDER}/"):
        return stored
    return os.path.join(os.path.abspath(folder), *checked_name(stored).split("/"))
