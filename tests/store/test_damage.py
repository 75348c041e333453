"""What is hurt is refused, named, and mended to what it was."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr import Gallery, TaprError, search
from tapr.encoders.fake import FakeEncoder
from tapr.store.catalog import Catalog
from tapr.store.layout import Manifest, catalog_path
from tapr.store.verify import verify
from tests.damaged import PAIRS, Counting, files, flip, put_nan
from tests.pictures import SOME_FLAGS, flag, png, write_flags

pytestmark = pytest.mark.usefixtures("small_shards")


def another(folder: Path, name: str) -> None:
    """The same file of a gallery of as many other pictures."""
    other = folder.parent / "other"
    write_flags(other / "p", [(two, one) for one, two in PAIRS])
    Gallery.build(other / "g", other / "p", FakeEncoder(), "both")
    shutil.copy(other / "g" / name, folder / name)


HURTS: dict[str, tuple[Callable[[Path], Any], str, str, list[tuple[int, int]], int]] = {
    # what is done, the file, what is said, the rows, how many pictures are encoded again
    "a flipped bit": (
        lambda g: flip(g / "local-0-00001.npy", 128 + 576 * 5), "local-0-00001.npy", "checksum differs", [(20, 24)], 4
    ),
    "a lost file": (
        lambda g: (g / "local-0-00001.npy").unlink(), "local-0-00001.npy", "is missing", [(16, 32)], 16
    ),
    "a lost file of codes": (
        lambda g: (g / "codes-0-00001.npy").unlink(), "codes-0-00001.npy", "is missing", [(16, 32)], 0
    ),
    "a file that is cut": (
        lambda g: os.truncate(g / "local-0-00000.npy", 128 + 576 * 13 + 1),
        "local-0-00000.npy", "shorter than the 16 rows", [(12, 16)], 4,
    ),
    "a file of another gallery": (
        lambda g: another(g, "local-0-00002.npy"), "local-0-00002.npy", "checksum differs", [(32, 36)], 4
    ),
    "zeros at the end": (
        lambda g: lose_the_end(g / "global-0-00002.npy", 200),
        "global-0-00002.npy", "checksum differs", [(32, 36)], 4,
    ),
    "a damaged header": (
        lambda g: flip(g / "errors-0-00001.npy", 30, 0xFF), "errors-0-00001.npy", "damaged header", [], 0
    ),
    "not a number": (
        lambda g: put_nan(g / "global-0-00000.npy"), "global-0-00000.npy", "checksum differs", [(0, 16)], 16
    ),
}  # fmt: skip


def lose_the_end(path: Path, keep: int) -> None:
    """As a power cut does it: the file has its size, and the end of it is zeros."""
    size = path.stat().st_size
    os.truncate(path, keep)
    os.truncate(path, size)


@pytest.mark.parametrize("what", HURTS)
def test_damaged_files_are_named_and_repaired_byte_for_byte(built: Path, what: str) -> None:
    hurt, file, said, rows, encoded = HURTS[what]
    before = files(built)
    hurt(built)
    assert files(built) != before
    verdict = verify(built)
    (damage,) = verdict.damage
    assert (damage.file, list(damage.rows)) == (file, rows)
    assert said in damage.reason
    ids = Gallery.open(built.parent / "whole").ids()
    assert list(verdict.pictures) == [ids[row] for start, stop in rows for row in range(start, stop)]
    encoder = Counting()
    gallery, repair = Gallery.repair(built, encoder=encoder)
    assert repair.files == [file]
    assert (repair.encoded, encoder.encoded, repair.lost) == (encoded, encoded, [])
    assert files(built) == before
    assert not verify(built).damage
    assert len(gallery) == 36


def test_all_of_it_at_once(built: Path) -> None:
    before = files(built)
    for hurt, *_ in HURTS.values():
        if (built / "local-0-00001.npy").exists() or hurt is not HURTS["a flipped bit"][0]:
            hurt(built)
    assert len(verify(built).damage) >= 6
    Gallery.repair(built, encoder=FakeEncoder())
    assert files(built) == before
    assert Gallery.repair(built, encoder=FakeEncoder())[1].files == []


def test_damage_at_the_end_of_a_file_is_refused_on_opening_and_by_index_runs(built: Path) -> None:
    gallery = Gallery.open(built, encoder=FakeEncoder())
    flip(built / "local-0-00002.npy", -1)
    write_flags(built.parent / "p", SOME_FLAGS[:1])
    for use in (lambda: Gallery.open(built), gallery.sync, lambda: search(built, "x", "red")):
        with pytest.raises(TaprError, match=r"local-0-00002.npy \(it does not hold.*mend it with tapr repair"):
            use()
    Gallery.repair(built, encoder=FakeEncoder())
    assert gallery.sync().encoded == 1


def test_appending_extends_the_last_checksum_and_reads_nothing_older(built: Path) -> None:
    def sums() -> dict[tuple[str, int, int], str]:
        catalog = Catalog.open(catalog_path(built, Manifest.read(built).snapshot))
        out = {
            (one.kind, one.shard, one.start): one.sha256
            for kind in Manifest.read(built).kinds() for shard in range(4) for one in catalog.checksums(kind, shard)
        }  # fmt: skip
        catalog.close()
        return out

    before = sums()
    flip(built / "local-0-00000.npy", 200)  # damage elsewhere stays what it is: named, not made good
    write_flags(built.parent / "p", [("red",)])
    Gallery.build(built, built.parent / "p", FakeEncoder())
    after = sums()
    assert {place for place in before if before[place] != after[place]} == {
        ("global", 2, 0), ("scales", 2, 0), ("errors", 2, 0), ("codes", 2, 0)
    }  # fmt: skip
    assert ("local", 2, 4) in set(after) - set(before)
    assert [damage.rows for damage in verify(built).damage] == [((0, 4),)]
    Gallery.repair(built, encoder=FakeEncoder())
    assert not verify(built).damage


def test_a_picture_whose_file_is_gone_is_named_and_removed(built: Path) -> None:
    ids = Gallery.open(built).ids()
    pictures = built.parent / "p"
    (pictures / ids[20]).unlink()
    (pictures / ids[21]).write_bytes(png(flag("red", "green", "red")))
    shutil.copy(pictures / ids[22], built.parent / "copy.png")
    flip(built / "local-0-00001.npy", 128 + 576 * 5)
    gallery, repair = Gallery.repair(built, encoder=FakeEncoder())
    assert repair.encoded == 2
    assert [(Path(path).name, reason) for path, reason in repair.lost] == [
        (ids[20], "cannot be read: no such file or directory"), (ids[21], "the file has changed since")
    ]  # fmt: skip
    assert gallery.ids() == [*ids[:20], *ids[22:]]
    failures = {entry.id: entry.failure or "" for entry in gallery.failures()}
    assert set(failures) == {ids[20], ids[21]}
    assert "cannot be made again" in failures[ids[20]]
    assert not verify(built).damage
    report = gallery.sync()  # what changed comes in as it is now, what is gone goes
    assert (report.encoded, report.failures) == (1, [])
    assert len(gallery) == 35
    vectors = gallery.gather(gallery.rows).decoded()
    fresh = Gallery.build(built.parent / "fresh", pictures, FakeEncoder(), "both")
    assert sorted(gallery.ids()) == sorted(fresh.ids())
    place = [gallery.position_of(id_) for id_ in fresh.ids()]
    assert np.array_equal(vectors[place], fresh.gather(fresh.rows).decoded())


def test_a_server_sees_that_a_gallery_was_repaired(built: Path) -> None:
    """It looks at the manifest's time and number, and would keep the damaged file mapped."""
    before = (built / "manifest.json").stat()
    Gallery.repair(built, encoder=FakeEncoder())
    assert (built / "manifest.json").stat() == before
    flip(built / "local-0-00001.npy", 128 + 576 * 5)
    Gallery.repair(built, encoder=FakeEncoder())
    after = (built / "manifest.json").stat()
    assert (after.st_mtime_ns, after.st_ino) != (before.st_mtime_ns, before.st_ino)


def test_equal_files_stand_in_for_one_that_is_gone(tmp_path: Path) -> None:
    (first,) = write_flags(tmp_path / "p", [("red", "blue")])
    shutil.copy(first, tmp_path / "p" / "zz.png")
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    before = files(tmp_path / "g")
    first.unlink()
    (tmp_path / "g" / "global-0-00000.npy").unlink()
    assert Gallery.repair(tmp_path / "g", encoder=FakeEncoder())[1].lost == []
    assert files(tmp_path / "g") == before


def test_an_unfinished_run_goes_on_after_a_repair(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(built.parent / "p", SOME_FLAGS)

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tapr.index.run.compact", stopped)
        with pytest.raises(KeyboardInterrupt):
            Gallery.build(built, built.parent / "p", FakeEncoder())
    flip(built / "local-0-00002.npy", 128 + 576 * 2)
    Gallery.repair(built, encoder=FakeEncoder())
    encoder = Counting()
    Gallery.build(built, built.parent / "p", encoder)
    assert encoder.encoded == 0
    assert not verify(built).damage


def test_rows_of_a_stopped_run_that_are_damaged_are_made_again(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(built.parent / "p", SOME_FLAGS)

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tapr.index.run.compact", stopped)
        with pytest.raises(KeyboardInterrupt):
            Gallery.build(built, built.parent / "p", FakeEncoder())
    flip(built / "local-0-00002.npy", 128 + 576 * 7)  # neither published nor at the end
    encoder = Counting()
    Gallery.build(built, built.parent / "p", encoder)
    assert encoder.encoded == 10
    assert not verify(built).damage


def test_damaged_rows_are_not_carried_into_the_next_generation(built: Path) -> None:
    flip(built / "local-0-00000.npy", 200)
    for path in sorted((built.parent / "p").iterdir())[5:]:
        path.unlink()
    with pytest.raises(TaprError, match=r"local-0-00000.npy does not hold what was written.*tapr repair"):
        Gallery.build(built, built.parent / "p", FakeEncoder())
    Gallery.repair(built, encoder=FakeEncoder())
    gallery = Gallery.build(built, built.parent / "p", FakeEncoder())
    assert (len(gallery), gallery.row_count) == (5, 5)
    assert not verify(built).damage


# the catalogue and the manifest


def test_a_catalogue_that_was_changed_is_refused_by_verify_repair_and_index(built: Path) -> None:
    with sqlite3.connect(built / "catalog-1.sqlite") as db:
        db.execute("UPDATE images SET row = 35 - row")
    db.close()
    (damage,) = verify(built).damage
    assert damage.file == "catalog-1.sqlite"
    assert "checksum differs" in damage.reason
    for use in (
        lambda: Gallery.repair(built, encoder=FakeEncoder()),
        lambda: Gallery.build(built, built.parent / "p", FakeEncoder()),
    ):
        with pytest.raises(TaprError, match=r"catalog-1.sqlite is damaged.*restore it from a copy"):
            use()


def test_every_flipped_bit_of_the_catalogue_is_seen_on_opening(built: Path) -> None:
    path = built / "catalog-1.sqlite"
    whole = path.read_bytes()
    places = np.random.default_rng(0).choice(8 * len(whole), 200, replace=False)
    for place in places.tolist():
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        with pytest.raises(TaprError):
            Gallery.open(built)
    path.write_bytes(whole)
    Gallery.open(built)


def test_a_large_catalogue_is_checked_before_the_first_answer(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.store.snapshot.LARGE_CATALOG", 0)
    assert Gallery.open(built).ids()
    path = built / "catalog-1.sqlite"
    data = bytearray(path.read_bytes())
    place = data.index(b".png")
    data[place] ^= 1
    path.write_bytes(data)
    gallery = Gallery.open(built)
    for answer in (gallery.ids, lambda: gallery.find("x"), lambda: search(gallery, png(flag("red")), "make it blue")):
        with pytest.raises(TaprError, match="is damaged"):
            answer()


def test_a_catalogue_of_another_gallery_is_refused_on_opening(built: Path) -> None:
    another(built, "catalog-1.sqlite")
    with pytest.raises(TaprError, match=r"catalog-1.sqlite (is damaged|has [\d,]+ bytes)"):
        Gallery.open(built)
    (built / "catalog-1.sqlite").write_bytes((built.parent / "whole" / "catalog-1.sqlite").read_bytes()[:-4096])
    with pytest.raises(TaprError, match=r"catalog-1.sqlite has [\d,]+ bytes, not"):
        Gallery.open(built)


def test_a_catalogue_with_unreadable_pages_is_one_sentence_wherever_it_is_read(built: Path) -> None:
    catalog = built / "catalog-1.sqlite"
    data = bytearray(catalog.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    catalog.write_bytes(data)
    with pytest.raises(TaprError, match=r"catalog-1.sqlite is damaged"):
        Gallery.open(built)
    assert [damage.file for damage in verify(built).damage] == ["catalog-1.sqlite"]


def test_a_header_that_is_cut_off_anywhere_is_damage_and_no_accident(built: Path) -> None:
    path = built / "local-0-00001.npy"
    whole = path.read_bytes()
    for place in range(0, 128, 5):
        path.write_bytes(whole[:place] + bytes(128 - place) + whole[128:])
        assert [damage.file for damage in verify(built).damage] == ["local-0-00001.npy"]
        with pytest.raises(TaprError, match=r"local-0-00001.npy"):
            Gallery.open(built)
    path.write_bytes(whole)


def test_a_changed_manifest_is_refused(built: Path) -> None:
    text = (built / "manifest.json").read_text()
    (built / "manifest.json").write_text(text.replace('"precision": "both"', '"precision": "fp16"'))
    with pytest.raises(TaprError, match=r"manifest.json is damaged \(its own checksum does not hold\)"):
        Gallery.open(built)


# files that change while they are open


_CUT = """
import os, sys
from tapr import Gallery, TaprError, search, EditSpec
from tapr.encoders.fake import FakeEncoder
gallery = Gallery.open(sys.argv[1], encoder=FakeEncoder())
for path in sys.argv[3:]:
    os.truncate(path, 4096)
for use in (
    lambda: search(gallery, sys.argv[2], spec=EditSpec("red", ["red"])),
    lambda: gallery.gather(gallery.rows),
    lambda: list(gallery.blocks()),
):
    try:
        use()
    except TaprError as error:
        print(error)
"""


def test_a_file_that_is_cut_while_it_is_mapped_is_an_error_and_not_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapr.store.layout.SHARD_BYTES", 2**20)
    write_flags(tmp_path / "p", PAIRS)
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    shard = tmp_path / "g" / "local-0-00000.npy"
    assert shard.stat().st_size > 3 * 4096
    reference = str(tmp_path / "p" / "red-pink.png")
    done = subprocess.run(
        [sys.executable, "-c", _CUT, str(tmp_path / "g"), reference, str(shard)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("local-0-00000.npy was cut short while it was in use") == 3
    gallery, _ = Gallery.repair(tmp_path / "g", encoder=FakeEncoder())
    assert len(gallery) == 36


def test_readers_go_on_with_what_they_opened_while_a_gallery_is_repaired(built: Path) -> None:
    reader = Gallery.open(built)
    before = reader.gather(reader.rows).decoded().copy()
    hurt = built / "local-0-00001.npy"
    other = hurt.with_name("x")
    shutil.copy(hurt, other)
    flip(other, 128 + 576 * 5)
    os.replace(other, hurt)  # another file under its name
    Gallery.repair(built, encoder=FakeEncoder())
    assert np.array_equal(reader.gather(reader.rows).decoded(), before)
