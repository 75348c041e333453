"""Catalogues whose checksums hold and whose rows tapr never wrote: one sentence, in bounded time and memory."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tapr import Gallery, TaprError
from tapr.encoders.fake import FakeEncoder
from tapr.store.backup import copy_gallery
from tapr.store.layout import MANIFEST, Manifest
from tapr.store.saved_searches import FILE, SavedSearch, SavedSearchFile
from tapr.store.verify import verify
from tests.cli.terminal import run
from tests.damaged import forge
from tests.pictures import flag, png, write_flags
from tests.refusals import refused

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
NESTED = "[" * 100_000
STATEMENTS = [
    *(f"UPDATE images SET {name} = x'00ff' WHERE id = 'put'" for name in (
        "id", "path", "size", "metadata", "row", "failure", "width")),
    *(f"UPDATE images SET {name} = 'text'" for name in ("size", "mtime_ns", "width", "height", "row", "metadata")),
    *(f"UPDATE images SET {name} = 2.5" for name in ("size", "row", "mtime_ns")),
    "UPDATE images SET path = x'00' WHERE source = 'uploads'",
    "UPDATE images SET path = 'a' || char(0) || 'b' WHERE id = 'put'",
    "UPDATE images SET source = x'00'",
    "UPDATE images SET row = -1",
    "UPDATE images SET row = 9223372036854775807",
    f"UPDATE images SET metadata = '{NESTED}'",
    "UPDATE images SET metadata = '[1]'",
    *(f"UPDATE state SET value = '{value}' WHERE name = 'rows'" for value in (
        "1e999", "-1", "999999999999", "99999999999999999999", "[1]", '"three"', "null", "1.5", "true", NESTED)),
    *(f"UPDATE state SET value = '{value}' WHERE name = 'generation'" for value in ('"../../x"', "1e999", "[]")),
    "UPDATE state SET value = '{}' WHERE name = 'sources'",
    "UPDATE state SET value = '[1]' WHERE name = 'declared'",
    "UPDATE checksums SET rows = 999999999999",
    "UPDATE checksums SET rows = -5",
    "UPDATE checksums SET rows = 'many'",
    "UPDATE checksums SET start = 1",
    "DELETE FROM checksums",
    "INSERT INTO checksums VALUES ('local', 0, 4, 99999999, '')",
    "DROP TABLE checksums",
    "DROP TABLE state",
    f"CREATE VIEW more AS {ENDLESS} i FROM n",
    "CREATE TABLE more (x, y AS (zeroblob(1000000000)))",
    "CREATE TRIGGER more AFTER UPDATE ON images BEGIN DELETE FROM images; END",
]  # fmt: skip


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    write_flags(tmp_path / "p", [("red",), ("blue",), ("green", "white")])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    gallery.put("put", png(flag("red", size=(40, 30))), {"price": 4})
    return gallery.path


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement[:60])
def test_a_forged_catalogue_is_named(gallery: Path, tmp_path: Path, statement: str) -> None:
    forge(gallery, statement)
    done = run("doctor", "--verify", "-g", gallery)
    assert done.code == 1
    assert "catalog" in done.out
    uses: list[Callable[[], object]] = [
        lambda: Gallery.repair(gallery, encoder=FakeEncoder()),
        lambda: copy_gallery(gallery, tmp_path / "copy"),
    ]
    for use in uses:
        with pytest.raises(TaprError):
            use()
    with contextlib.suppress(TaprError):  # what a search does not read, it need not refuse
        opened = Gallery.open(gallery, encoder=FakeEncoder())
        opened.entries(range(len(opened)))
        opened.sync()


def test_a_view_in_place_of_a_table_is_refused(gallery: Path) -> None:
    """Otherwise the first question to it never ends."""
    forge(gallery, "ALTER TABLE images RENAME TO before")
    forge(gallery, f"CREATE VIEW images AS {ENDLESS} before.* FROM n, before")
    assert not verify(gallery).is_whole
    with pytest.raises(TaprError, match="other tables"):
        Gallery.open(gallery, encoder=FakeEncoder())


@pytest.mark.parametrize("card", [{"dim": 10**12}, {"grid": [10**6, 10**6]}, {"dim": True}])
def test_a_manifest_of_vectors_without_end_is_refused(gallery: Path, card: dict[str, object]) -> None:
    manifest = Manifest.read(gallery)
    manifest.model_copy(update={"encoder": {**manifest.encoder, **card}}).write(gallery)
    with pytest.raises(TaprError, match="dim and grid"):
        Manifest.read(gallery)
    assert run("doctor", "--verify", "-g", gallery).code == 1
    assert json.loads((gallery / MANIFEST).read_text())


def test_shards_are_not_written_through_links(gallery: Path, tmp_path: Path) -> None:
    shard = gallery / "local-0-00000.npy"
    shard.rename(tmp_path / "elsewhere.npy")
    before = (tmp_path / "elsewhere.npy").read_bytes()
    shard.symlink_to(tmp_path / "elsewhere.npy")
    assert [damage.file for damage in verify(gallery).damage] == [shard.name]
    with refused("outside_folder", shard.name):
        Gallery.open(gallery, encoder=FakeEncoder()).put("more", png(flag("black", size=(40, 30))))
    assert (tmp_path / "elsewhere.npy").read_bytes() == before
    Gallery.repair(gallery, encoder=FakeEncoder())
    assert verify(gallery).is_whole
    assert (tmp_path / "elsewhere.npy").read_bytes() == before


def test_saved_searches_that_are_forged(gallery: Path, tmp_path: Path) -> None:
    file = SavedSearchFile(gallery)
    file.save(SavedSearch("reds", {"text": "red"}, 0.5, 1), [], [])
    with contextlib.closing(sqlite3.connect(gallery / FILE)) as db, db:
        db.execute("UPDATE searches SET question = ?", (NESTED,))
    with pytest.raises(TaprError, match=FILE):
        file.all()
    with contextlib.closing(sqlite3.connect(gallery / FILE)) as db, db:
        db.execute(f"CREATE VIEW more AS {ENDLESS} i FROM n")
    assert not verify(gallery).is_whole
    (gallery / FILE).rename(tmp_path / FILE)
    (gallery / FILE).symlink_to(tmp_path / FILE)
    with refused("outside_folder"):
        file.all()


def test_only_files_of_tapr_are_swept_from_a_gallery(gallery: Path) -> None:
    others = [
        "my-catalog-notes.sqlite3", "catalog-9.sqlite.bak", "global-warming-talk.npy", "notes-local-0-1.npy.txt",
        ".manifest.json.mine", ".notes.repair",
    ]  # fmt: skip
    left = [".catalog-9.sqlite.new", "catalog-1.sqlite-journal", "local-9-00000.npy", ".local-0-00000.npy.repair"]
    for name in (*others, *left):
        (gallery / name).write_bytes(b"x")
    opened = Gallery.open(gallery, encoder=FakeEncoder())
    opened.put("more", png(flag("black", size=(40, 30))))
    opened.sync()
    Gallery.repair(gallery, encoder=FakeEncoder())
    assert [name for name in (*others, *left) if (gallery / name).exists()] == others
