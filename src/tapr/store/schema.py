"""The tables of a catalogue, and upgrades from older versions."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tapr.store.columns import column_of_texts

VERSION = 4  # SQLite's user_version; 3 had no checksums, catalogues before that have none

_CHECKSUMS = """
CREATE TABLE checksums (  -- of rows of the shard files
  kind    TEXT NOT NULL,
  shard   INTEGER NOT NULL,
  start   INTEGER NOT NULL,  -- first row, counted in the shard
  rows    INTEGER NOT NULL,
  sha256  TEXT NOT NULL,
  PRIMARY KEY (kind, shard, start)
) WITHOUT ROWID;
"""
SCHEMA = f"""
CREATE TABLE images (
  key       INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given to another picture
  id        TEXT NOT NULL UNIQUE,
  path      TEXT NOT NULL UNIQUE,
  size      INTEGER NOT NULL,
  mtime_ns  INTEGER NOT NULL,
  sha256    TEXT NOT NULL,
  width     INTEGER,
  height    INTEGER,
  metadata  TEXT NOT NULL DEFAULT '{{}}',
  row       INTEGER,
  failure   TEXT,
  source    TEXT,
  caption   TEXT
);
CREATE INDEX images_sha256 ON images(sha256);
CREATE INDEX images_row ON images(row);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE columns (name TEXT PRIMARY KEY, type TEXT NOT NULL, declared INTEGER NOT NULL, note TEXT NOT NULL);
CREATE TABLE cells (key INTEGER NOT NULL, name TEXT NOT NULL, value, PRIMARY KEY (key, name)) WITHOUT ROWID;
CREATE TRIGGER cells_go AFTER DELETE ON images BEGIN DELETE FROM cells WHERE key = OLD.key; END;
{_CHECKSUMS}
PRAGMA user_version = {VERSION};
"""
_BEFORE = "key, id, path, size, mtime_ns, sha256, width, height, metadata, row, failure"


def version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def add_checksums(db: sqlite3.Connection) -> None:
    """From version 3 to 4; the table is empty until the shards are summed."""
    db.executescript(f"BEGIN; {_CHECKSUMS} PRAGMA user_version = {VERSION}; COMMIT;")


def upgrade(db: sqlite3.Connection) -> None:
    """Versions 1 and 2 had no types: CSV cells such as 19.90 and true were kept as text, and NaN as no JSON."""
    state = db.execute("SELECT name, value FROM state").fetchall()
    images = db.execute(f"SELECT {_BEFORE} FROM images ORDER BY key").fetchall()
    for table in ("images", "state"):
        db.execute(f"DROP TABLE {table}")
    db.executescript(SCHEMA)
    db.executemany("INSERT INTO state VALUES (?, ?)", state)
    place = _BEFORE.split(", ").index("metadata")
    typed = _typed([json.loads(image[place]) for image in images])
    db.executemany(
        f"INSERT INTO images ({_BEFORE}) VALUES ({', '.join('?' * len(_BEFORE.split(', ')))})",
        (
            (*image[:place], json.dumps(metadata, ensure_ascii=False, sort_keys=True), *image[place + 1 :])
            for image, metadata in zip(images, typed, strict=True)
        ),
    )
    db.commit()


def _typed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Columns of plain cells are read as those of a CSV are today; lists and objects stay as they are."""
    out: list[dict[str, Any]] = [{} for _ in rows]
    for name in sorted({name for row in rows for name in row}):
        holders = [i for i, row in enumerate(rows) if row.get(name) is not None]
        values = [rows[i][name] for i in holders]
        if all(isinstance(value, (str, int, float)) for value in values):
            values = list(column_of_texts([_as_text(value) for value in values]))
        for i, value in zip(holders, values, strict=True):
            if value is not None:
                out[i][name] = value
    return out


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
