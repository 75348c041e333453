"""SQLite connections to a catalogue, and readable errors."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tapr.errors import TaprError

LOCK_SECONDS = 30  # how long to wait for another program, such as a database browser, to release the catalogue
_RESTORE = "restore it from a copy, or index the pictures into a new folder"
# Errors of what is around the file: the file itself is whole, and advice to replace it would lose data.
_FILE_IS_WHOLE = {
    sqlite3.SQLITE_FULL: "make room on its disk and on that of temporary files, then try again",
    sqlite3.SQLITE_READONLY: "allow writing to it and to its folder",
    sqlite3.SQLITE_PERM: "allow reading and writing it",
    sqlite3.SQLITE_CANTOPEN: "allow reading and writing it and its folder, and enough open files",
    sqlite3.SQLITE_NOMEM: "free some memory, then try again",
    sqlite3.SQLITE_IOERR: "the disk failed: check it before you go on",
    sqlite3.SQLITE_NOLFS: "keep it on a disk that takes large files",
}


_SPACE = re.compile(r"--[^\n]*|\s+")  # and comments


class Locked(TaprError):
    """Another program has locked the catalogue. It is not damaged."""

    code = "writer_busy"


def connect(path: Path | str) -> sqlite3.Connection:
    # one connection is shared by a server's threads; sqlite3 serialises their calls
    return sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False, uri=isinstance(path, str))


def has_only_tables_of(db: sqlite3.Connection, script: str) -> bool:
    """Whether a database holds exactly what the script creates.

    A file from elsewhere may hold views, triggers and computed columns in their place, which run without an end.
    """
    return _tables(db) == _tables_made_by(script)


@cache
def _tables_made_by(script: str) -> frozenset[tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(script)
        return _tables(db)


def _tables(db: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    rows = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return frozenset((type_, name, _SPACE.sub(" ", sql or "")) for type_, name, sql in rows)


@contextlib.contextmanager
def sqlite_errors(path: Path, what: str = "the catalogue", advice: str = _RESTORE) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unusable(path, error, what, advice) from None


def unusable(path: Path, reason: object, what: str = "the catalogue", advice: str = _RESTORE) -> TaprError:
    """Return the error to raise. `advice` is for a file that is damaged."""
    code = getattr(reason, "sqlite_errorcode", 0) & 0xFF  # without the details
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Locked(f"{what} {path} is locked by another program, such as a database browser: close it")
    return TaprError(f"cannot use {what} {path}: {reason}; {_FILE_IS_WHOLE.get(code, advice)}")
