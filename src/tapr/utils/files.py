"""Writes files so that readers never see a partial one, and so that they survive a power cut."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tapr.utils.rooted import Root


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file in one step: readers see the old content or the new content. Permissions follow the umask."""
    try:
        Root(path.parent).write(path.name, [data])
    except OSError as error:
        error.filename = str(path)
        raise


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, so that their names survive a power cut."""
    new = [folder, *folder.parents]
    new = new[: next((number for number, path in enumerate(new) if path.exists()), len(new))]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new or [folder]:  # the user may have created it a moment ago
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
