"""The tables of a catalogue."""

from __future__ import annotations

import sqlite3

from tapr.store.layout import FORMAT_VERSION

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
  source    TEXT NOT NULL,
  caption   TEXT
);
CREATE INDEX images_sha256 ON images(sha256);
CREATE INDEX images_row ON images(row);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE columns (name TEXT PRIMARY KEY, type TEXT NOT NULL, declared INTEGER NOT NULL, note TEXT NOT NULL);
CREATE TABLE cells (key INTEGER NOT NULL, name TEXT NOT NULL, value, PRIMARY KEY (key, name)) WITHOUT ROWID;
CREATE TRIGGER cells_go AFTER DELETE ON images BEGIN DELETE FROM cells WHERE key = OLD.key; END;
CREATE TABLE checksums (  -- of rows of the shard files
  kind    TEXT NOT NULL,
  shard   INTEGER NOT NULL,
  start   INTEGER NOT NULL,  -- first row, counted in the shard
  rows    INTEGER NOT NULL,
  sha256  TEXT NOT NULL,
  PRIMARY KEY (kind, shard, start)
) WITHOUT ROWID;
CREATE TABLE hidden (path TEXT PRIMARY KEY) WITHOUT ROWID;  -- files of sources that index runs leave out
CREATE TABLE answers (  -- results of single writes, by idempotency key
  number   INTEGER PRIMARY KEY AUTOINCREMENT,
  key      TEXT NOT NULL UNIQUE,
  request  TEXT NOT NULL,
  answer   TEXT NOT NULL,
  moment   INTEGER NOT NULL
);
PRAGMA user_version = {FORMAT_VERSION};
"""


def version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
