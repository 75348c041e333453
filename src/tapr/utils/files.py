"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """The old file or the new one, never a part; who may read it is the user's umask to say."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        move_into_place(name, path, sync=False)  # the file is synchronised already
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            name.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the file that was meant, not the one on the way to it
        raise
    sync_folder(path.parent)


def move_into_place(new: Path, path: Path, *, sync: bool = True) -> None:
    """Give a finished file its name, in place of the old one. Readers see the old file or the new one, never a part.

    `sync`: the content and the name are on the disk before this returns, so that they survive a power cut.
    """
    if sync:
        sync_file(new)
    os.replace(new, path)
    if sync:
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """What others wrote to it survives a power cut."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Names of new files survive a power cut too; where a system cannot do that for folders, it is left to it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
