"""The catalogue of a gallery: one SQLite row per picture. What is committed here exists; the shards follow it.

A published catalogue is never written again (snapshot.py), so whoever has one open sees one state of the gallery.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from threading import Thread
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput, TaprError
from tapr.store import filters as where
from tapr.store import schema, uploads
from tapr.store.checksums import Checksum
from tapr.store.column_statistics import GalleryStatistics
from tapr.store.columns import Column, ColumnType, cell, declared_type
from tapr.store.connection import connect, has_only_tables_of, sqlite_errors, unusable
from tapr.store.facets import Facet, facets_of
from tapr.store.layout import FORMAT_VERSION, other_version
from tapr.store.write_log import WriteLog
from tapr.utils.files import move_into_place
from tapr.utils.rooted import OutsideFolder

_COLUMNS = "key, id, path, size, mtime_ns, sha256, width, height, metadata, row, failure, source, caption"
_WRITTEN = _COLUMNS.removeprefix("key, ").split(", ")
_PUT = (
    f"INSERT INTO images ({', '.join(_WRITTEN)}) VALUES ({', '.join('?' * len(_WRITTEN))})"
    f" ON CONFLICT(path) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _WRITTEN)}"
)
WITHOUT_ID = "\0"  # prefix of a placeholder for an id until the picture is encoded; no real id starts with it
# Compaction leaves at most as many dead rows as live ones, and a few (compact.py); these bounds are far above that
MAX_ROWS_PER_PICTURE, MAX_SPARE_ROWS = 8, 4096
_BATCH = 500  # parameters per statement; SQLite allows at least 999
_GALLERY = "gallery"  # state key: the gallery's id
CAPTIONS = "captions"  # state key: whether pictures are described, as --captions or --no-captions said
FIRST_STAGE = "first_stage"  # state key: whether there is to be one, as --first-stage or --no-first-stage said
EXIF = "exif"  # state key: whether metadata of picture files are read, as --exif or --no-exif said
_DECLARED = "declared"  # state key: types declared by options, not by a table's header


@dataclass(frozen=True)
class Entry:
    """A picture of the gallery, or a file that could not be indexed (`row` is None, `failure` says why)."""

    id: str
    path: str
    size: int
    mtime_ns: int
    sha256: str  # of the file's bytes; "" if it could not be read
    width: int | None = None
    height: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    row: int | None = None  # physical row in the shards
    failure: str | None = None
    source: str = ""  # the source it comes from
    caption: str | None = None  # what the picture shows; "": the captioner is not sure; None: not described yet
    key: int | None = None  # primary key


_TYPES_OF_ROW: tuple[Container[type], ...] = (
    {int}, {str}, {str}, {int}, {int}, {str}, {int, NoneType}, {int, NoneType}, {str}, {int, NoneType},
    {str, NoneType}, {str, NoneType}, {str, NoneType},
)  # fmt: skip


@cache
def _is_of_types(*types: type) -> bool:
    """Whether these are the types of _COLUMNS. There are few such rows of types, so each is looked at once."""
    return all(type_ in allowed for type_, allowed in zip(types, _TYPES_OF_ROW, strict=True))


class Catalog:
    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db, self._path = db, path
        self.hidden: Collection[str] = ()  # columns that this reader is not to see
        # views of a gallery share the connection, and the last one closes it; Python 3.13 warns of unclosed connections
        weakref.finalize(self, db.close)
        self._check: Thread | None = None
        self._damage: list[TaprError] = []
        db.create_function("contains", 2, where.contains, deterministic=True)

    @classmethod
    def create(cls, path: Path, gallery_id: str) -> Catalog:
        """Create an empty catalogue, open for writing."""
        with sqlite_errors(path):
            catalog = cls(connect(path), path)
            catalog._db.executescript(schema.SCHEMA)
            catalog.set_state(_GALLERY, gallery_id)
            catalog.commit()
            return catalog

    @classmethod
    def open(cls, path: Path, *, published: bool = True) -> Catalog:
        """Open a published catalogue to read it, or a draft to write it."""
        if not path.exists():
            raise FileNotFoundError(path)
        if path.is_symlink():
            raise OutsideFolder(f"the catalogue {path} is a link, which is not followed")
        with sqlite_errors(path):
            catalog = cls(connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1" if published else path), path)
            version = schema.version_of(catalog._db)
            if version != FORMAT_VERSION:
                catalog.close()
                raise other_version(path, version)
            if not has_only_tables_of(catalog._db, schema.SCHEMA):
                catalog.close()
                raise unusable(path, "it holds other tables than a gallery has")
            return catalog

    def check_in_background(self, check: Callable[[], None]) -> None:
        """`check` raises where the file is damaged; then so does everything here that names pictures."""

        def run() -> None:
            try:
                check()
            except TaprError as error:
                self._damage.append(error)

        self._check = Thread(target=run, name="tapr-checksum", daemon=True)
        self._check.start()

    def _wait_for_check(self) -> None:
        if self._check is not None:
            self._check.join()
            if self._damage:
                raise type(self._damage[0])(str(self._damage[0]))

    def copy_to(self, path: Path, *, sync: bool) -> None:
        """Make a writable copy. A kill leaves no copy or a complete one; with `sync` so does a power cut."""
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        shutil.copyfile(self._path, new)  # never written again, so this is safe, and faster than SQLite's backup
        move_into_place(new, path, sync=sync)

    def check_pages(self) -> None:
        """Refuse a file whose pages do not fit together."""
        if self._ask("PRAGMA quick_check(1)") != [("ok",)]:
            raise self._unusable("its pages do not fit together")

    def sync_late(self) -> None:
        """Do not synchronise commits: until `publish` a draft need not survive a power cut."""
        self._db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")

    def publish(self, path: Path) -> None:
        """Finish writing: move the catalogue to its final name, safely on disk."""
        self.commit()
        self.close()
        move_into_place(self._path, path)

    @property
    def folder(self) -> Path:
        """The gallery's folder."""
        return self._path.parent

    def close(self) -> None:
        self._db.close()

    def commit(self) -> None:
        self._db.commit()

    @cached_property
    def written(self) -> WriteLog:
        return WriteLog(self._db)

    # state of the whole index

    def get_state(self, name: str, default: Any = None) -> Any:
        rows = self._ask("SELECT value FROM state WHERE name = ?", name)
        return self._json(rows[0][0]) if rows else default

    def set_state(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, json.dumps(value)))

    def rows_committed(self) -> int:
        return self._count("rows")

    def generation(self) -> int:
        return self._count("generation")

    def gallery_id(self) -> str:
        return str(self.get_state(_GALLERY))

    def _count(self, name: str) -> int:
        value = self.get_state(name, 0)
        if type(value) is not int or not 0 <= value < 2**48:
            raise self._unusable(f"{name} in it is {str(value)[:40]!r}")
        return value

    def sources(self) -> list[str]:
        sources = self.get_state("sources", [])
        if type(sources) is not list or not all(type(source) is str for source in sources):
            raise self._unusable("its sources are no list of texts")
        return sources

    def declared(self) -> dict[str, ColumnType]:
        """The types of columns that the user declared, with --column or columns=."""
        declared = self.get_state(_DECLARED, {})
        if type(declared) is not dict:
            raise self._unusable("its declared types are no object")
        return {name: declared_type(name, type_) for name, type_ in declared.items()}

    # reading

    def select(self, condition: str | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys and rows of the pictures that meet a `where` condition, in gallery order."""
        sql, parameters = ("1", []) if condition is None else where.to_sql(condition, *self._names)
        query = f"SELECT key, row FROM images WHERE row IS NOT NULL AND ({sql}) ORDER BY row, key"
        try:
            found = self._db.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            if condition is None:
                raise self._unusable(error) from None
            raise BadInput(f"the filter cannot be used: {error}") from None
        try:
            pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        except (ValueError, TypeError):
            raise self._unusable("its pictures have rows that are no numbers") from None
        return pairs[:, 0], pairs[:, 1]

    def columns(self) -> list[Column]:
        """Those of the metadata."""
        found = self._ask("SELECT name, type, declared, note FROM columns ORDER BY name")
        return [
            Column(name, declared_type(name, type_), bool(declared), note)
            for name, type_, declared, note in found
            if name not in self.hidden
        ]

    def is_column_held(self, name: str, besides: int | None) -> bool:
        """Whether a picture other than that of the key `besides` has a value of this column."""
        return bool(self._ask("SELECT 1 FROM cells WHERE name = ? AND key IS NOT ? LIMIT 1", name, besides))

    @cached_property
    def facets(self) -> list[Facet]:
        with sqlite_errors(self._path):
            return facets_of(self._db, self.columns())

    @cached_property
    def _names(self) -> tuple[dict[str, ColumnType], dict[str, ColumnType]]:
        """The types of the metadata and of the built-in columns; a gallery without captions has no such column."""
        built_in = dict(where.BUILT_IN)
        if not self._ask("SELECT 1 FROM images WHERE caption IS NOT NULL LIMIT 1"):
            del built_in["caption"]
        return {column.name: column.type for column in self.columns()}, built_in

    def by_keys(self, keys: Sequence[int]) -> list[Entry]:
        """Entries in the order of the keys, read in batches, because they may be the whole gallery."""
        found: dict[int | None, Entry] = {}
        for start in range(0, len(keys), _BATCH):
            lot = keys[start : start + _BATCH]
            entries = self._many(f"key IN ({', '.join('?' * len(lot))})", *lot)
            found.update((entry.key, entry) for entry in entries)
        if len(found) < len(set(keys)):
            raise self._unusable("it does not hold all of its pictures")
        return [found[key] for key in keys]

    def by_id(self, id_: str) -> Entry | None:
        found = self._many("id = ?", id_)
        return found[0] if found else None

    def by_sha256(self, sha256: str) -> list[Entry]:
        return self._many("sha256 = ? AND row IS NOT NULL", sha256)

    def failures(self) -> list[Entry]:
        return self._many("failure IS NOT NULL")

    def entries(self) -> list[Entry]:
        return self._many("1")

    def undescribed(self) -> dict[int, str]:
        """Rows of pictures without a caption, in order, with the path of a file."""
        found = self._ask("SELECT row, MIN(path) FROM images WHERE row >= 0 AND caption IS NULL GROUP BY row")
        return {row: self._used(path) for row, path in found}

    def captions(self) -> tuple[int, int]:
        """How many pictures have a caption, and for how many the captioner was not sure."""
        query = "SELECT COUNT(NULLIF(caption, '')), COUNT(caption) FROM images WHERE row IS NOT NULL"
        ((captioned, described),) = self._ask(query)
        return captioned, described - captioned

    def rows_in_use(self) -> int:
        """The number of physical rows in use."""
        return int(self._ask("SELECT COUNT(DISTINCT row) FROM images")[0][0])

    def counts(self) -> dict[str, int]:
        ((pictures, failures),) = self._ask("SELECT COUNT(row), COUNT(failure) FROM images")
        return {"pictures": pictures, "failures": failures, "rows": self.rows_committed()}

    def sizes(self, source: str) -> tuple[int, int]:
        """The number of pictures, and the bytes of the files of this source and of the metadata of all."""
        query = (
            "SELECT COUNT(*), TOTAL(CASE WHEN source = ? THEN size ELSE 0 END + LENGTH(CAST(metadata AS BLOB)))"
            " FROM images WHERE row IS NOT NULL"
        )
        ((pictures, size),) = self._ask(query, source)
        return pictures, int(size)

    def counts_by_source(self) -> dict[str, int]:
        return dict(self._ask("SELECT source, COUNT(row) FROM images GROUP BY source"))

    def folders_of(self, source: str) -> set[str]:
        """The folders of the files of a source."""
        return {os.path.dirname(path) for (path,) in self._ask("SELECT path FROM images WHERE source = ?", source)}

    def by_rows(self, start: int, stop: int) -> list[Entry]:
        """The pictures of these physical rows; several may share one."""
        return self._many("row >= ? AND row < ?", start, stop)

    def check_rows(self) -> None:
        """Refuse a catalogue with a row of other types than tapr writes, or of more rows than its pictures explain."""
        self.sources(), self.declared()
        total = self.rows_committed()
        types = (("INTEGER", "key size mtime_ns"), ("TEXT", "id path sha256 metadata source"))
        optional = (("INTEGER", "width height row"), ("TEXT", "failure caption"))
        wrong = [f"typeof({name}) <> '{type_.lower()}'" for type_, names in types for name in names.split()]
        wrong += [
            f"typeof({name}) NOT IN ('{type_.lower()}', 'null')" for type_, names in optional for name in names.split()
        ]
        if rows := self._ask(
            f"SELECT key FROM images WHERE {' OR '.join(wrong)} OR row NOT BETWEEN 0 AND ? LIMIT 1", total - 1
        ):
            raise self._unusable(f"its row {rows[0][0]!s:.20} holds values that tapr does not write")
        pictures = self._ask("SELECT COUNT(*) FROM images")[0][0]
        if total > MAX_ROWS_PER_PICTURE * pictures + MAX_SPARE_ROWS:
            raise self._unusable(f"it counts {total:,} rows and has {pictures:,} pictures")

    # checksums of the shards

    def checksums(self, kind: str, shard: int) -> list[Checksum]:
        """Return those of one shard file, in the order of its rows."""
        query = "SELECT start, rows, sha256 FROM checksums WHERE kind = ? AND shard = ? ORDER BY start"
        return [Checksum(kind, shard, *found) for found in self._ask(query, kind, shard)]

    def last_checksum(self, kind: str, shard: int) -> Checksum | None:
        query = "SELECT start, rows, sha256 FROM checksums WHERE kind = ? AND shard = ? ORDER BY start DESC LIMIT 1"
        return next((Checksum(kind, shard, *found) for found in self._ask(query, kind, shard)), None)

    def rows_summed(self, kind: str) -> int:
        return int(self._ask("SELECT TOTAL(rows) FROM checksums WHERE kind = ?", kind)[0][0])

    def put_checksums(self, checksums: Iterable[Checksum]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO checksums VALUES (?, ?, ?, ?, ?)",
            ((one.kind, one.shard, one.start, one.rows, one.sha256) for one in checksums),
        )

    def forget_checksums(self, kinds: Sequence[str]) -> None:
        """Delete the checksums of these files: they are rewritten, or have none."""
        self._db.executemany("DELETE FROM checksums WHERE kind = ?", ((kind,) for kind in kinds))

    # writing; nothing is stored before commit()

    def put(self, entry: Entry) -> None:
        """Insert, or replace the entry of the same path; an id that is taken by another path is an error upstream."""
        metadata = json.dumps(entry.metadata, ensure_ascii=False, sort_keys=True, allow_nan=False)
        special = {"metadata": metadata, "path": self._stored(entry.path)}
        self._db.execute(_PUT, [special.get(name, getattr(entry, name)) for name in _WRITTEN])

    def remove(self, paths: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM images WHERE path = ?", ((self._stored(path),) for path in paths))

    def free_ids(self, paths: Iterable[str]) -> None:
        """Release the ids of these entries, because ids may move between pictures."""
        free = "UPDATE images SET id = ? WHERE path = ?"
        self._db.executemany(free, ((WITHOUT_ID + path, self._stored(path)) for path in paths))

    def caption(self, captions: Iterable[tuple[int, str]]) -> None:
        """(row, caption) pairs; files of the same content share a row."""
        self._db.executemany("UPDATE images SET caption = ? WHERE row = ?", ((text, row) for row, text in captions))
        self.__dict__.pop("_names", None)

    def renumber(self, new_rows: Iterable[tuple[int, int]]) -> None:
        """(new row, key) pairs, after the shards were rewritten without dead rows."""
        self._db.executemany("UPDATE images SET row = ? WHERE key = ?", new_rows)

    def declare(self, columns: Mapping[str, ColumnType]) -> None:
        self.set_state(_DECLARED, dict(columns))

    def retype(
        self,
        declared: Mapping[str, ColumnType],
        new: Collection[str] | None = None,
        statistics: GalleryStatistics | None = None,
    ) -> GalleryStatistics:
        """Tell every column's type from all its values, and store the values as filters compare them; -> the counts.

        `new` are the ids of the entries put since the last time, where that is known: while the types stay, only
        their values are stored. `statistics` are the counts of all values, where they are known: else all are read.
        """
        found = None if statistics is None else statistics.columns(declared)
        if statistics is None or found is None:
            statistics = GalleryStatistics(metadata for _, metadata in self._metadata())
            found = statistics.columns(declared)
        assert found is not None
        if new is not None and list(found.values()) == self.columns():
            self._store_cells(
                ((entry.key, entry.metadata) for id_ in new for entry in self._many("id = ?", id_)), found
            )
            return statistics
        self._db.execute("DELETE FROM columns")
        self._db.execute("DELETE FROM cells")
        self._db.executemany(
            "INSERT INTO columns VALUES (?, ?, ?, ?)",
            ((column.name, column.type, column.declared, column.note) for column in found.values()),
        )
        self._store_cells(self._metadata(), found)
        self.__dict__.pop("_names", None)
        return statistics

    def _store_cells(self, rows: Iterable[tuple[int | None, dict[str, Any]]], columns: Mapping[str, Column]) -> None:
        for key, metadata in list(rows):
            self._db.execute("DELETE FROM cells WHERE key = ?", (key,))
            cells = ((key, name, cell(value, columns[name].type)) for name, value in metadata.items())
            self._db.executemany("INSERT INTO cells VALUES (?, ?, ?)", cells)

    def _metadata(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for key, metadata in self._db.execute("SELECT key, metadata FROM images WHERE metadata <> '{}' ORDER BY key"):
            yield key, self._json(metadata)

    def _many(self, condition: str, *parameters: Any) -> list[Entry]:
        self._wait_for_check()
        rows = self._ask(f"SELECT {_COLUMNS} FROM images WHERE {condition} ORDER BY key", *parameters)
        return [self._entry(row) for row in rows]

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        """Read a row; refuse one that tapr does not write: whoever forges a catalogue may write anything."""
        key, id_, stored, size, mtime_ns, sha256, width, height, metadata, place, failure, source, caption = row
        known = self._json(metadata)
        if not _is_of_types(*map(type, row)) or type(known) is not dict or "\0" in stored:
            raise self._unusable(f"its row {key!s:.20} holds values of other types")
        path = uploads.as_used(self._path.parent, uploads.checked_name(stored) if source == uploads.SOURCE else stored)
        for name in self.hidden:
            known.pop(name, None)
        return Entry(id_, path, size, mtime_ns, sha256, width, height, known, place, failure, source, caption, key)

    def _stored(self, path: str) -> str:
        return uploads.as_stored(self._path.parent, path)

    def _used(self, path: str) -> str:
        return uploads.as_used(self._path.parent, path)

    def _ask(self, query: str, *parameters: Any) -> list[Any]:
        try:
            return self._db.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _json(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise self._unusable(f"{str(text)[:40]!r} in it is not JSON") from None

    def _unusable(self, reason: object) -> TaprError:
        return unusable(self._path, reason)
