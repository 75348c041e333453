"""Writes files so that readers never see a partial one."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file in one step: readers see the old content or the new content. Permissions follow the umask."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        move_into_place(name, path, sync=False)  # the file is synchronised already
    except BaseException as error:
        with contextlib.suppress(OSError):  # report the first error
            name.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # name the final file in the error, not the temporary one
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
    """Make sure that the file's content survives a power cut."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make sure that new file names survive a power cut. Ignored if the system cannot do that for folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
