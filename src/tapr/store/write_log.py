"""Tables for single writes in the catalogue: hidden source files, and results by idempotency key."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass

ANSWERS, ANSWER_SECONDS = 10_000, 24 * 3600  # how many results are kept, and for how long


@dataclass(frozen=True)
class Answer:
    request: str  # hash of the request
    text: str  # JSON


class WriteLog:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def hidden(self) -> set[str]:
        """Return the source files whose pictures were deleted or replaced one by one. Index runs leave them out."""
        return {path for (path,) in self._db.execute("SELECT path FROM hidden")}

    def set_hidden(self, paths: Iterable[str]) -> None:
        self._db.execute("DELETE FROM hidden")
        self.hide(paths)

    def hide(self, paths: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO hidden VALUES (?)", ((path,) for path in paths))

    def answer(self, key: str) -> Answer | None:
        asked = "SELECT request, answer FROM answers WHERE key = ? AND moment > ?"
        found = self._db.execute(asked, (key, int(time.time()) - ANSWER_SECONDS)).fetchone()
        return Answer(*found) if found else None

    def keep_answer(self, key: str, answer: Answer) -> None:
        now = int(time.time())
        put = "INSERT OR REPLACE INTO answers (key, request, answer, moment) VALUES (?, ?, ?, ?)"
        self._db.execute(put, (key, answer.request, answer.text, now))
        self._db.execute("DELETE FROM answers WHERE moment <= ?", (now - ANSWER_SECONDS,))
        self._db.execute("DELETE FROM answers WHERE number <= (SELECT MAX(number) FROM answers) - ?", (ANSWERS,))
