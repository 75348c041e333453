"""Galleries of an older tapr: read, migrated, verified, repaired."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.store.layout import Manifest
from tapr.store.verify import verify
from tests.gallery.damaged import DATA, PAIRS, Counting
from tests.pictures import write_flags

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.mark.parametrize("version", [2, 3])
def test_a_stored_gallery_of_every_version_is_read_migrated_and_verified(tmp_path: Path, version: int) -> None:
    old = tmp_path / "old"
    shutil.copytree(DATA / f"version{version}", old)
    pictures = [("red",), ("blue",), ("green",), ("white",)]
    write_flags(tmp_path / "p", pictures)
    table = tmp_path / "p" / "t.csv"
    table.write_text(
        "path,price,new,since,name\nred.png,19.90,true,2024-05-31,Rot\nblue.png,120,false,2023-01-01,Blau\n"
        "green.png,nan,true,2024-12-24,Grün\nwhite.png,7,,,Weiß\n",
        encoding="utf-8",
    )
    catalog = old / ("catalog.sqlite" if version == 2 else "catalog-1.sqlite")
    with sqlite3.connect(catalog) as db:
        db.execute(f"UPDATE images SET path = replace(path, '/tmp/v{version}/pictures', ?)", (str(tmp_path / "p"),))
        db.execute("UPDATE state SET value = ? WHERE name = 'sources'", (json.dumps([str(table)]),))
    db.close()
    before = Gallery.open(old, encoder=FakeEncoder())
    assert before.select("price < 80 and name != 'Weiß'").ids() == ["red.png"]
    verdict = verify(old)
    assert (verdict.damage, verdict.summed, verdict.rows) == ((), False, 4)
    encoder = Counting()
    gallery = Gallery.build(old, table, encoder)
    assert encoder.encoded == 0
    assert Manifest.read(old).format_version == 4
    assert verify(old).summed
    assert not verify(old).damage
    fresh = Gallery.build(tmp_path / "fresh", table, FakeEncoder(), gallery.precision)
    assert gallery.ids() == before.ids() == fresh.ids()
    assert np.array_equal(gallery.gather(gallery.rows).decoded(), fresh.gather(fresh.rows).decoded())
    write_flags(tmp_path / "p", PAIRS)
    gallery.sync([tmp_path / "p"])
    assert len(gallery) == 40
    assert not verify(old).damage


@pytest.mark.parametrize("version", [2, 3])
def test_a_lost_shard_of_an_older_gallery_is_repaired_too(tmp_path: Path, version: int) -> None:
    old = tmp_path / "old"
    shutil.copytree(DATA / f"version{version}", old)
    write_flags(tmp_path / "p", [("red",), ("blue",), ("green",)])
    catalog = old / ("catalog.sqlite" if version == 2 else "catalog-1.sqlite")
    with sqlite3.connect(catalog) as db:
        db.execute(f"UPDATE images SET path = replace(path, '/tmp/v{version}/pictures', ?)", (str(tmp_path / "p"),))
    db.close()
    (old / "global-0-00000.npy").unlink()
    gallery, repair = Gallery.repair(old, encoder=FakeEncoder())
    assert gallery.ids() == ["red.png", "blue.png", "green.png"] + ["white.png"] * (version == 3)
    assert [Path(path).name for path, _ in repair.lost] == ["white.png"] * (version == 2)  # in another shard in 3
    assert not verify(old).damage
    assert verify(old).summed


def test_an_unfinished_run_of_version_3_is_continued(tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(DATA / "version3", old)
    shutil.copy(old / "catalog-1.sqlite", old / "catalog-2.sqlite")
    write_flags(tmp_path / "p", [("red",)])
    gallery = Gallery.open(old, encoder=FakeEncoder())
    report = gallery.sync([tmp_path / "p"])
    assert (report.shared, len(gallery)) == (1, 5)
    assert not verify(old).damage
