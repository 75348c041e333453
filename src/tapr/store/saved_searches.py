"""The file of a gallery's saved searches: questions, the vectors of their pictures, and the matches found so far.

It is a SQLite database beside the catalogues, made by the first search that is saved. Index runs do not touch it. Every
change is one transaction that is on the disk when it returns. Rows carry checksums, which `verify` compares.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.errors import BadInput, TaprError
from tapr.store.connection import Locked, connect, has_only_tables_of, sqlite_errors, unusable
from tapr.utils.rooted import OutsideFolder

FILE = "searches.sqlite"
MAX_SEARCHES = 100  # per gallery: each is asked again after every change
_NAME = re.compile(r"\w[\w .-]{0,63}")
_ADVICE = "restore it from a backup, or delete that file to begin without saved searches"
_TABLES = """
CREATE TABLE IF NOT EXISTS searches (name TEXT PRIMARY KEY, question TEXT NOT NULL, threshold REAL NOT NULL,
    made INTEGER NOT NULL, webhook TEXT, checked INTEGER NOT NULL, sum TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pictures (search TEXT NOT NULL REFERENCES searches ON DELETE CASCADE, place INTEGER NOT NULL,
    role TEXT NOT NULL, data BLOB NOT NULL, sum TEXT NOT NULL, PRIMARY KEY (search, place));
CREATE TABLE IF NOT EXISTS matches (number INTEGER PRIMARY KEY AUTOINCREMENT,
    search TEXT NOT NULL REFERENCES searches ON DELETE CASCADE, sha256 TEXT NOT NULL, id TEXT NOT NULL,
    score REAL NOT NULL, snapshot INTEGER NOT NULL, found INTEGER NOT NULL, is_new INTEGER NOT NULL, sum TEXT NOT NULL,
    posted INTEGER NOT NULL DEFAULT 0, UNIQUE (search, sha256));
"""
# what the sum of a row is made of; `checked` and `posted` change
_SUMMED = {
    "searches": "name, question, threshold, made, webhook",
    "pictures": "search, place, role, data",
    "matches": "search, sha256, id, score, snapshot, found, is_new",
}


class UnknownSearch(BadInput):
    """The gallery has no saved search of this name."""

    code = "unknown_search"


@dataclass(frozen=True)
class SavedSearch:
    """A question as it was when it was saved, and the score from which on a picture fits it."""

    name: str
    question: dict[str, Any]
    threshold: float
    made: int  # seconds since 1970
    webhook: str | None = None
    checked: int = 0  # the snapshot that it was last compared with


@dataclass(frozen=True)
class Fit:
    """A picture that fits a saved search."""

    id: str
    sha256: str  # of its content: a renamed picture is not a new one
    score: float


@dataclass(frozen=True)
class Match(Fit):
    """One that came after the search was saved."""

    number: int  # counts up over all saved searches of the gallery
    search: str
    snapshot: int
    found: int  # seconds since 1970

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def checked_name(name: str) -> str:
    """Letters and digits of any script, spaces, . - and _, so that it can stand in an address."""
    normal = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(normal):
        raise BadInput(f"a saved search's name has up to 64 letters, digits, spaces, - _ and ., not {name[:80]!r}")
    return normal


class SavedSearchFile:
    """Every call opens the file and closes it: it is used seldom, and by several processes."""

    def __init__(self, gallery: Path) -> None:
        self.path = gallery / FILE

    def exists(self) -> bool:
        return self.path.exists()

    def size(self) -> int:
        """Return how many bytes the file has."""
        return self.path.stat().st_size if self.exists() else 0

    def save(
        self,
        search: SavedSearch,
        pictures: Sequence[tuple[str, bytes]],
        known: Sequence[Fit],
        check_size: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Save a search in place of one of that name.

        `pictures` are roles and data; `known` fit already, and are never new. `check_size` may refuse the file that
        has grown to that many bytes; then it stays as it was.
        """
        before = self.size()
        with self._writing() as db:
            db.execute("DELETE FROM searches WHERE name = ?", (search.name,))
            if db.execute("SELECT COUNT(*) FROM searches").fetchone()[0] >= MAX_SEARCHES:
                raise BadInput(f"a gallery keeps up to {MAX_SEARCHES} saved searches: delete one first")
            question = json.dumps(search.question, sort_keys=True)
            row = search.name, question, search.threshold, search.made, search.webhook
            db.execute("INSERT INTO searches VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, search.checked, _sum(row)))
            for place, (role, data) in enumerate(pictures):
                part = search.name, place, role, data
                db.execute("INSERT INTO pictures VALUES (?, ?, ?, ?, ?)", (*part, _sum(part)))
            _add(db, search.name, known, search.checked, is_new=False)
            ((size,),) = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
            if size > before:
                check_size(size)

    def all(self) -> list[SavedSearch]:
        return self._searches("ORDER BY name")

    def get(self, name: str) -> SavedSearch:
        found = self._searches("WHERE name = ?", unicodedata.normalize("NFC", name))
        if not found:
            raise UnknownSearch(f"the gallery has no saved search {name[:80]!r}: tapr searches list names them")
        return found[0]

    def pictures(self, name: str) -> list[tuple[str, bytes]]:
        with self._reading() as db:
            return db.execute("SELECT role, data FROM pictures WHERE search = ? ORDER BY place", (name,)).fetchall()

    def delete(self, name: str) -> None:
        name = self.get(name).name
        with self._writing() as db:
            db.execute("DELETE FROM searches WHERE name = ?", (name,))

    def record(self, search: SavedSearch, fits: Sequence[Fit], snapshot: int) -> None:
        """The pictures that fit in this snapshot. Those not known before become matches, once, whoever finds them."""
        with self._writing() as db:
            same = "SELECT 1 FROM searches WHERE name = ? AND made = ?"
            if not db.execute(same, (search.name, search.made)).fetchall():
                return  # deleted, or saved anew meanwhile
            _add(db, search.name, fits, snapshot, is_new=True)
            db.execute("UPDATE searches SET checked = ? WHERE name = ?", (snapshot, search.name))

    def matches(self, name: str | None = None, *, after: int = 0, most: int = 1000) -> list[Match]:
        """The last ones, oldest first; those of one search, or of all."""
        of_one = " AND search = ?" if name is not None else ""
        return self._matches(f"number > ?{of_one}", after, *(() if name is None else (self.get(name).name,)), most=most)

    def not_posted(self, name: str, since: int, most: int) -> list[Match]:
        """Matches whose webhook has not accepted them, and that were found after this moment; the oldest first."""
        return self._matches("search = ? AND found >= ? AND NOT posted", name, since, most=most, first=True)

    def set_posted(self, matches: Sequence[Match]) -> None:
        with self._writing() as db:
            db.executemany("UPDATE matches SET posted = 1 WHERE number = ?", [(one.number,) for one in matches])

    def last_number(self) -> int:
        with self._reading() as db:
            return int(db.execute("SELECT COALESCE(MAX(number), 0) FROM matches").fetchone()[0])

    def damage(self) -> str | None:
        """What is wrong with the file; None: nothing."""
        try:
            with self._reading() as db:
                if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                    return "is damaged"
                for table, columns in _SUMMED.items():
                    rows = db.execute(f"SELECT sum, {columns} FROM {table}")
                    if any(stored != _sum(row) for stored, *row in rows):
                        return "does not hold what was written (its checksum differs)"
        except Locked:
            raise
        except TaprError:
            return "is damaged"
        return None

    def content(self) -> bytes:
        """Return the bytes of a consistent copy, taken while others write."""
        with self._reading() as db, contextlib.closing(connect(":memory:")) as copy:
            db.backup(copy)
            return copy.serialize()

    def _searches(self, which: str, *values: str) -> list[SavedSearch]:
        columns = "name, question, threshold, made, webhook, checked"
        with self._reading() as db:
            rows = db.execute(f"SELECT {columns} FROM searches {which}", values).fetchall()
        try:
            return [SavedSearch(name, dict(json.loads(question)), *rest) for name, question, *rest in rows]
        except (ValueError, TypeError, RecursionError) as error:
            raise unusable(self.path, error, "the saved searches", _ADVICE) from None

    def _matches(self, which: str, *values: Any, most: int, first: bool = False) -> list[Match]:
        columns = "id, sha256, score, number, search, snapshot, found"
        order = f"ORDER BY number {'' if first else 'DESC '}LIMIT {most:d}"
        with self._reading() as db:
            rows = db.execute(f"SELECT {columns} FROM matches WHERE is_new AND {which} {order}", values).fetchall()
        return sorted((Match(*row) for row in rows), key=lambda match: match.number)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._refuse_link()
        # who may write opens it so: what a killed process left half done is undone when it is opened
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        place = f"{self.path.absolute().as_uri()}?mode={mode}" if self.exists() else ":memory:"
        with (
            sqlite_errors(self.path, "the saved searches", _ADVICE),
            contextlib.closing(connect(place)) as db,
            contextlib.closing(connect(":memory:")) as empty,
        ):
            is_whole = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'matches'").fetchall()
            if is_whole and not has_only_tables_of(db, _TABLES):
                raise unusable(self.path, "it holds other tables than tapr's", "the saved searches", _ADVICE)
            if not is_whole:  # no file, or the first search was never saved whole
                empty.executescript(_TABLES)
            yield db if is_whole else empty

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._refuse_link()
        with (
            sqlite_errors(self.path, "the saved searches", _ADVICE),
            contextlib.closing(connect(self.path)) as db,
            db,  # one transaction: committed at the end, or undone
        ):
            db.execute("PRAGMA synchronous = EXTRA")  # also when its journal is deleted: survives a power cut
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, _TABLES.split(";")):
                db.execute(statement)
            yield db

    def _refuse_link(self) -> None:
        if self.path.is_symlink():
            raise OutsideFolder(f"the saved searches {self.path} are a link, which is not followed")


def _add(db: sqlite3.Connection, search: str, fits: Sequence[Fit], snapshot: int, *, is_new: bool) -> None:
    now = int(time.time())
    for fit in fits:
        row = search, fit.sha256, fit.id, fit.score, snapshot, now, int(is_new)
        db.execute(
            f"INSERT OR IGNORE INTO matches ({_SUMMED['matches']}, sum) VALUES (?,?,?,?,?,?,?,?)", (*row, _sum(row))
        )


def _sum(row: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for value in row:
        data = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]
