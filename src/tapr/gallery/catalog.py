"""The catalogue of a gallery: one SQLite row a picture. What is committed here exists; the shards follow it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput, TaprError

_SCHEMA = """
CREATE TABLE images (
  key       INTEGER PRIMARY KEY,
  id        TEXT NOT NULL UNIQUE,
  path      TEXT NOT NULL UNIQUE,
  size      INTEGER NOT NULL,
  mtime_ns  INTEGER NOT NULL,
  sha256    TEXT NOT NULL,
  width     INTEGER,
  height    INTEGER,
  metadata  TEXT NOT NULL DEFAULT '{}',
  row       INTEGER,
  failure   TEXT
);
CREATE INDEX images_sha256 ON images(sha256);
CREATE INDEX images_row ON images(row);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_COLUMNS = "key, id, path, size, mtime_ns, sha256, width, height, metadata, row, failure"
_LOT = 500  # parameters of one statement; SQLite takes at least 999


@dataclass(frozen=True)
class Entry:
    """A picture of the gallery, or a file that failed (row is None, failure says why)."""

    id: str
    path: str
    size: int
    mtime_ns: int
    sha256: str  # of the file's bytes; "" when it could not be read
    width: int | None = None
    height: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    row: int | None = None  # physical row in the shards
    failure: str | None = None
    key: int | None = None  # the catalogue's own number


class Catalog:
    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        if not create and not path.exists():
            raise BadInput(f"the catalogue {path} is missing: index the pictures again")
        try:
            # one connection is shared by a server's threads; sqlite3 serialises their calls
            self._db = sqlite3.connect(path, timeout=30, check_same_thread=False)
            if create and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
                self._db.executescript(_SCHEMA)
            self.rows_committed()
        except sqlite3.Error as error:
            raise TaprError(f"cannot use the catalogue {path}: {error}") from None

    def close(self) -> None:
        self._db.close()

    def commit(self) -> None:
        self._db.commit()

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """What was not committed when an error came is forgotten."""
        try:
            yield
        except BaseException:
            self._db.rollback()
            raise

    # what the index as a whole knows

    def get_state(self, name: str, default: Any = None) -> Any:
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else default

    def set_state(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, json.dumps(value)))

    def rows_committed(self) -> int:
        return int(self.get_state("rows", 0))

    def generation(self) -> int:
        return int(self.get_state("generation", 0))

    # reading

    def rows_in_order(
        self, condition: str = "1", parameters: Sequence[Any] = ()
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys and rows of the pictures, in gallery order; `condition` comes from where.py, never from a user."""
        query = f"SELECT key, row FROM images WHERE row IS NOT NULL AND ({condition}) ORDER BY row, key"
        try:
            pairs = np.array(self._db.execute(query, parameters).fetchall(), dtype=np.int64).reshape(-1, 2)
        except sqlite3.Error as error:
            raise BadInput(f"the filter cannot be used: {error}") from None
        return pairs[:, 0], pairs[:, 1]

    def by_keys(self, keys: Sequence[int]) -> list[Entry]:
        """In the order of the keys; asked for in lots, because a whole gallery's may be."""
        found: dict[int | None, Entry] = {}
        for start in range(0, len(keys), _LOT):
            lot = keys[start : start + _LOT]
            entries = self._many(f"key IN ({', '.join('?' * len(lot))})", *lot)
            found.update((entry.key, entry) for entry in entries)
        return [found[key] for key in keys]

    def by_id(self, id_: str) -> Entry | None:
        return self._maybe("id = ?", id_)

    def by_path(self, path: str) -> Entry | None:
        return self._maybe("path = ?", path)

    def by_sha256(self, sha256: str) -> list[Entry]:
        return self._many("sha256 = ? AND row IS NOT NULL", sha256)

    def failures(self) -> list[Entry]:
        return self._many("failure IS NOT NULL")

    def entries(self) -> Iterator[Entry]:
        for row in self._db.execute(f"SELECT {_COLUMNS} FROM images ORDER BY key"):
            yield _entry(row)

    def counts(self) -> dict[str, int]:
        pictures, failures = self._db.execute(
            "SELECT COUNT(row), COUNT(failure) FROM images",
        ).fetchone()
        return {"pictures": pictures, "failures": failures, "rows": self.rows_committed()}

    def metadata_keys(self) -> list[str]:
        query = "SELECT DISTINCT j.key FROM images, json_each(images.metadata) AS j ORDER BY 1"
        return [row[0] for row in self._db.execute(query)]

    # writing; nothing is kept before commit()

    def put(self, entry: Entry) -> None:
        """Insert, or replace the entry of the same path; an id that is taken by another path is an error upstream."""
        values = (
            entry.id, entry.path, entry.size, entry.mtime_ns, entry.sha256, entry.width, entry.height,
            json.dumps(entry.metadata, ensure_ascii=False, sort_keys=True), entry.row, entry.failure,
        )  # fmt: skip
        self._db.execute(
            "INSERT INTO images (id, path, size, mtime_ns, sha256, width, height, metadata, row, failure)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT(path) DO UPDATE SET id = excluded.id, size = excluded.size, mtime_ns = excluded.mtime_ns,"
            " sha256 = excluded.sha256, width = excluded.width, height = excluded.height,"
            " metadata = excluded.metadata, row = excluded.row, failure = excluded.failure",
            values,
        )

    def remove(self, paths: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM images WHERE path = ?", ((path,) for path in paths))

    def renumber(self, new_rows: Iterable[tuple[int, int]]) -> None:
        """(new row, key) pairs, after the shards were rewritten without dead rows."""
        self._db.executemany("UPDATE images SET row = ? WHERE key = ?", new_rows)

    def _maybe(self, condition: str, *parameters: Any) -> Entry | None:
        found = self._many(condition, *parameters)
        return found[0] if found else None

    def _many(self, condition: str, *parameters: Any) -> list[Entry]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM images WHERE {condition} ORDER BY key", parameters).fetchall()
        return [_entry(row) for row in rows]


def _entry(row: tuple[Any, ...]) -> Entry:
    key, id_, path, size, mtime_ns, sha256, width, height, metadata, physical, failure = row
    return Entry(id_, path, size, mtime_ns, sha256, width, height, json.loads(metadata), physical, failure, key)
