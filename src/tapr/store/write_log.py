"""Tables for single writes in the catalogue: hidden source files, and results by idempotency key.

Both are created when first needed; older versions ignore them.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass

ANSWERS, ANSWER_SECONDS = 10_000, 24 * 3600  # how many results are kept, and for how long
_TABLES = (
    "CREATE TABLE hidden (path TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE answers (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, request TEXT NOT NULL,"
    " answer TEXT NOT NULL, moment INTEGER NOT NULL)",
)


@dataclass(frozen=True)
class Answer:
    request: str  # hash of the request
    text: str  # JSON


class WriteLog:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def hidden(self) -> set[str]:
        """Source files whose pictures were deleted or replaced over HTTP. Index runs ignore them."""
        return {path for (path,) in self._db.execute("SELECT path FROM hidden")} if self._is_there() else set()

    def set_hidden(self, paths: Iterable[str]) -> None:
        self._make()
        self._db.execute("DELETE FROM hidden")
        self.hide(paths)

    def hide(self, paths: Iterable[str]) -> None:
        self._make()
        self._db.executemany("INSERT OR IGNORE INTO hidden VALUES (?)", ((path,) for path in paths))

    def answer(self, key: str) -> Answer | None:
        if not self._is_there():
            return None
        asked = "SELECT request, answer FROM answers WHERE key = ? AND moment > ?"
        found = self._db.execute(asked, (key, int(time.time()) - ANSWER_SECONDS)).fetchone()
        return Answer(*found) if found else None

    def keep_answer(self, key: str, answer: Answer) -> None:
        self._make()
        now = int(time.time())
        put = "INSERT OR REPLACE INTO answers (key, request, answer, moment) VALUES (?, ?, ?, ?)"
        self._db.execute(put, (key, answer.request, answer.text, now))
        self._db.execute("DELETE FROM answers WHERE moment <= ?", (now - ANSWER_SECONDS,))
        self._db.execute("DELETE FROM answers WHERE number <= (SELECT MAX(number) FROM answers) - ?", (ANSWERS,))

    def _is_there(self) -> bool:
        return bool(self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'hidden'").fetchall())

    def _make(self) -> None:
        if not self._is_there():
            for statement in _TABLES:
                self._db.execute(statement)
