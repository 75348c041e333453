"""Ids for pictures without one: stable, and without revealing where files are. See docs/where.md."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_DIGITS = 12  # digits of the folder's hash; enough to avoid collisions


def id_below(path: str, folder: str | Path) -> str:
    """The path relative to the table's folder; for files elsewhere, `hidden_id`."""
    try:
        below = os.path.relpath(path, folder)
    except ValueError:  # another drive of Windows
        return hidden_id(path)
    outside = os.path.isabs(below) or below.split(os.sep)[0] in (os.pardir, os.curdir)
    return hidden_id(path) if outside else Path(below).as_posix()


def hidden_id(path: str) -> str:
    """A hash of the folder and the file's name: 3f2a1b9c4d5e/red.png. The same path has the same one everywhere."""
    folder, name = os.path.split(path)
    return f"{hashlib.sha256(folder.encode(errors='surrogatepass')).hexdigest()[:_DIGITS]}/{name}"
