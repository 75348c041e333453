"""SQLite connections to a catalogue, and readable errors."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tapr.errors import TaprError

LOCK_SECONDS = 30  # how long to wait for another program, such as a database browser, to release the catalogue
_RESTORE = "restore it from a copy, or index the pictures into a new folder"


class Locked(TaprError):
    """Another program has locked the catalogue. It is not damaged."""

    code = "writer_busy"


def connect(path: Path | str) -> sqlite3.Connection:
    # one connection is shared by a server's threads; sqlite3 serialises their calls
    return sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False, uri=isinstance(path, str))


@contextlib.contextmanager
def sqlite_errors(path: Path, what: str = "the catalogue", advice: str = _RESTORE) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unusable(path, error, what, advice) from None


def unusable(path: Path, reason: object, what: str = "the catalogue", advice: str = _RESTORE) -> TaprError:
    if isinstance(reason, sqlite3.OperationalError) and "locked" in str(reason):
        return Locked(f"{what} {path} is locked by another program, such as a database browser: close it")
    return TaprError(f"cannot use {what} {path}: {reason}; {advice}")
