import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tapr import BadInput, Gallery, TaprError
from tapr.encoders.base import Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.index.report import Report
from tapr.store.lock import writer_lock
from tapr.utils.progress import NoProgress
from tests.pictures import SOME_FLAGS, flag, png, write_flags


class Counting(FakeEncoder):
    """Counts what it encodes."""

    encoded = 0

    def encode_images(self, prepared):  # type: ignore[no-untyped-def]
        self.encoded += len(prepared)
        return super().encode_images(prepared)


def report_of(gallery: Gallery) -> Report:
    assert gallery.report is not None
    return gallery.report


def vectors(gallery: Gallery) -> dict[str, list[float]]:
    block = gallery.gather(gallery.rows)
    return dict(zip(gallery.ids(), block.global_vectors.tolist(), strict=True))


def test_build_open_and_read_without_our_code(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    built = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    opened = Gallery.open(tmp_path / "g", encoder=FakeEncoder())
    assert len(opened) == len(SOME_FLAGS) == report_of(built).encoded
    assert opened.ids() == sorted(opened.ids())
    manifest = json.loads((tmp_path / "g" / "manifest.json").read_text())
    assert manifest["encoder"]["name"] == "fake"
    assert manifest["counts"] == {"pictures": 10, "failures": 0, "rows": 10}
    local = np.load(tmp_path / "g" / "local-0-00000.npy")
    assert local.shape == (10, 9, 32)
    encoder = FakeEncoder()
    expected = encoder.encode_images([encoder.prepare(Image.open(tmp_path / "p" / "blue.png").convert("RGB"))])
    assert np.array_equal(local[opened.ids().index("blue.png")], expected.local_vectors[0].astype(np.float16))


@pytest.mark.parametrize("precision", ["fp16", "int8", "both"])
def test_every_precision_gives_the_same_vectors_nearly(tmp_path: Path, precision: str) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), precision)  # type: ignore[arg-type]
    exact = Gallery.build(tmp_path / "e", tmp_path / "p", FakeEncoder()).gather(np.arange(10))
    block = gallery.gather(np.arange(10))
    assert (block.local_vectors is None) == (precision == "int8")
    assert (block.local_codes is None) == (precision == "fp16")
    assert np.abs(block.decoded().astype(float) - exact.decoded()).max() < 0.01


def test_an_encoder_whose_vectors_are_too_long_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    class Long(FakeEncoder):
        def encode_images(self, prepared):  # type: ignore[no-untyped-def]
            evidence = super().encode_images(prepared)
            return Evidence(evidence.global_vectors, 2 * evidence.local_vectors)

    write_flags(tmp_path / "p", SOME_FLAGS[:3])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    write_flags(tmp_path / "p", SOME_FLAGS[3:])
    with pytest.raises(BadInput, match="local vector of length 2"):
        Gallery.build(tmp_path / "g", tmp_path / "p", Long())
    assert len(Gallery.open(tmp_path / "g", encoder=FakeEncoder())) == 3


def test_sync_does_exactly_the_work_that_is_needed(tmp_path: Path) -> None:
    """Delete, rename, add, touch, change, repeat."""
    encoder = Counting()
    colours = ["red", "green", "blue", "white", "black", "pink", "brown", "cyan", "grey", "orange"]
    paths = write_flags(tmp_path / "p", [(colour,) for colour in colours])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", encoder)
    before = vectors(gallery)
    assert encoder.encoded == 10

    assert gallery.sync().unchanged == 10
    paths[0].unlink()  # red
    paths[1].rename(tmp_path / "p" / "verde.png")
    write_flags(tmp_path / "p" / "new", [("yellow",), ("purple",)])
    os.utime(paths[2])  # blue
    paths[3].write_bytes(png(flag("white", "red")))
    shutil.copy(paths[4], tmp_path / "p" / "black again.png")
    report = gallery.sync()
    assert (report.encoded, report.removed, report.renamed, report.touched, report.shared) == (3, 1, 1, 1, 1)
    assert report.unchanged == 6
    assert encoder.encoded == 13

    after = vectors(gallery)
    assert "red.png" not in after
    assert after["verde.png"] == before["green.png"]
    assert after["black again.png"] == before["black.png"]
    assert after["white.png"] != before["white.png"]
    fresh = vectors(Gallery.build(tmp_path / "fresh", tmp_path / "p", FakeEncoder()))
    assert after == fresh


def test_names_that_change_places_need_no_encoding(tmp_path: Path) -> None:
    encoder = Counting()
    red, blue = write_flags(tmp_path / "p", [("red",), ("blue",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", encoder)
    was = vectors(gallery)
    red.rename(tmp_path / "p" / "x.png")
    blue.rename(red)
    gallery.sync()
    assert encoder.encoded == 2
    assert vectors(gallery) == {"red.png": was["blue.png"], "x.png": was["red.png"]}


def test_ids_may_change_places_while_a_file_changes(tmp_path: Path) -> None:
    """Each id is let go before another picture gets it, also when that one is encoded only later."""
    write_flags(tmp_path, [("red",), ("blue",), ("green",)])
    table = tmp_path / "t.csv"
    table.write_text("path,id\nred.png,1\nblue.png,2\ngreen.png,3\n")
    gallery = Gallery.build(tmp_path / "g", table, FakeEncoder())
    table.write_text("path,id\nred.png,2\nblue.png,3\ngreen.png,1\n")
    (tmp_path / "blue.png").write_bytes(png(flag("blue", "white")))
    report = gallery.sync()
    assert (report.encoded, report.touched) == (1, 2)
    fresh = vectors(Gallery.build(tmp_path / "fresh", table, FakeEncoder()))
    assert vectors(gallery) == fresh
    assert set(fresh) == {"1", "2", "3"}
    table.write_text("path,id\nred.png,1\nblue.png,2\n")  # an id of a picture that is gone
    (tmp_path / "red.png").write_bytes(png(flag("red", "white")))
    gallery.sync()
    assert vectors(gallery) == vectors(Gallery.build(tmp_path / "fresh", table, FakeEncoder()))


_SLOW = """
import sys, time
from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.index import encode

class Slow(FakeEncoder):
    def encode_images(self, prepared):
        time.sleep(0.05)
        print(len(prepared), flush=True)
        return super().encode_images(prepared)

encode.BATCH, encode.COMMIT_SECONDS = 4, 0.0
Gallery.build(sys.argv[1], sys.argv[2], Slow())
"""


def test_kill_and_resume_give_the_bank_of_an_undisturbed_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "p").mkdir()
    for i in range(100):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / "p" / f"{i:03d}.png")
    command = [sys.executable, "-c", _SLOW, str(tmp_path / "killed"), str(tmp_path / "p")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(6):  # some batches, then the hard way out
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()

    encoder = Counting()
    resumed = Gallery.build(tmp_path / "killed", tmp_path / "p", encoder)
    assert 100 - 6 * 4 <= encoder.encoded <= 100 - 4 * 4  # what was committed is not encoded again
    whole = Gallery.build(tmp_path / "whole", tmp_path / "p", FakeEncoder())
    for name in ("global-0-00000.npy", "local-0-00000.npy"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert resumed.ids() == whole.ids()
    assert resumed.rows.tolist() == whole.rows.tolist()


def test_many_shards_read_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    whole = Gallery.build(tmp_path / "whole", tmp_path / "p", FakeEncoder())
    monkeypatch.setattr("tapr.store.layout.SHARD_BYTES", 9 * 32 * 2 * 3)  # three rows a shard
    parted = Gallery.build(tmp_path / "parted", tmp_path / "p", FakeEncoder())
    assert len(list((tmp_path / "parted").glob("local-*.npy"))) == 4
    blocks = list(parted.blocks())
    assert [block.start for block in blocks] == [0, 3, 6, 9]
    joined = np.concatenate([block.global_vectors for block in blocks])
    assert np.array_equal(joined, next(whole.blocks()).global_vectors)
    rows = np.array([9, 0, 4, 4])
    assert np.array_equal(parted.gather(rows).local_vectors, whole.gather(rows).local_vectors)  # type: ignore[arg-type]


def test_dead_rows_are_swept_out_when_they_are_most(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "p").mkdir()
    for i in range(60):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / "p" / f"{i:03d}.png")
    encoder = Counting()
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", encoder)
    was = vectors(gallery)
    for i in range(5, 60):
        (tmp_path / "p" / f"{i:03d}.png").unlink()
    gallery.sync()
    assert gallery.row_count == 5
    assert vectors(gallery) == {id_: was[id_] for id_ in gallery.ids()}
    assert [path.name for path in (tmp_path / "g").glob("local-*")] == ["local-1-00000.npy"]
    assert encoder.encoded == 60
    write_flags(tmp_path / "p", [("red",)])
    gallery.sync()
    assert len(gallery) == 6


def test_filters_narrow_the_gallery(tmp_path: Path) -> None:
    write_flags(tmp_path, [("red",), ("blue",), ("green",)])
    (tmp_path / "t.csv").write_text("path,kind\nred.png,warm\nblue.png,cold\ngreen.png,cold\n")
    gallery = Gallery.build(tmp_path / "g", tmp_path / "t.csv", FakeEncoder())
    assert gallery.select("kind = 'cold'").ids() == ["blue.png", "green.png"]
    assert len(gallery) == 3
    assert gallery.metadata_keys() == ["kind"]


def test_a_picture_outside_of_a_view_has_no_position_in_it(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    view = gallery.select("id = 'red.png'")
    assert view.position_of("red.png") == 0
    with pytest.raises(BadInput, match=r"'blue.png' is not among those for which id = 'red.png'"):
        view.position_of("blue.png")
    with pytest.raises(BadInput, match=r"no picture with the id 'green.png'"):
        view.position_of("green.png")


def test_banks_with_different_settings_do_not_mix(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    with pytest.raises(BadInput, match="made with precision 'fp16', not 'int8'"):
        Gallery.build(tmp_path / "g", tmp_path / "p", precision="int8")
    with pytest.raises(BadInput, match="made with encoder 'fake', not 'clip-b16'"):
        Gallery.build(tmp_path / "g", tmp_path / "p", "clip-b16")
    with pytest.raises(BadInput, match=r"made with grid \(3, 3\)"):
        Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(grid=(2, 2)))
    with pytest.raises(BadInput, match="precision must be one of"):
        Gallery.build(tmp_path / "h", tmp_path / "p", FakeEncoder(), "fp8")  # type: ignore[arg-type]


def test_nothing_is_lost_when_a_source_is_away(tmp_path: Path) -> None:
    write_flags(tmp_path / "drive", [("red",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "drive", FakeEncoder())
    (tmp_path / "drive").rename(tmp_path / "unplugged")
    report = gallery.sync()
    assert (report.kept, report.removed) == (1, 0)
    assert [source for source, _ in report.away] == [str(tmp_path / "drive")]
    assert gallery.ids() == ["red.png"]
    with pytest.raises(BadInput, match="no file or folder"):
        Gallery.build(tmp_path / "other", tmp_path / "none", FakeEncoder())
    assert not (tmp_path / "other").exists()


def test_a_folder_that_is_no_gallery_is_left_alone(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    with pytest.raises(BadInput, match="exists and is not a gallery"):
        Gallery.build(tmp_path / "p", tmp_path / "p", FakeEncoder())
    with pytest.raises(BadInput, match="is not a gallery"):
        Gallery.open(tmp_path / "p")


def test_a_damaged_bank_says_so(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    (tmp_path / "g" / "local-0-00000.npy").write_bytes(b"not an array")
    with pytest.raises(TaprError, match="mend it with tapr repair"):
        Gallery.open(tmp_path / "g")
    (tmp_path / "g" / "catalog-1.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(TaprError, match=r"the catalogue .* has 1,400 bytes"):
        Gallery.open(tmp_path / "g")
    (tmp_path / "g" / "catalog-1.sqlite").unlink()
    with pytest.raises(BadInput, match=r"catalog-1.sqlite is missing"):
        Gallery.open(tmp_path / "g")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    with writer_lock(tmp_path / "g"), pytest.raises(BadInput, match="is writing to"):
        gallery.sync(wait=0)


def test_progress_is_told(tmp_path: Path) -> None:
    class Told(NoProgress):
        def __init__(self) -> None:
            self.said: list[str] = []
            self.total: dict[str, int] = {}
            self.done: dict[str, int] = {}

        def say(self, sentence: str) -> None:
            self.said.append(sentence)

        def start(self, total: int, what: str) -> None:
            self.total[what], self.done[what], self._what = total, 0, what

        def advance(self, done: int) -> None:
            self.done[self._what] += done

    write_flags(tmp_path / "p", SOME_FLAGS)
    told = Told()
    begin = time.perf_counter()
    report = report_of(Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), progress=told))
    assert told.total == told.done
    assert told.total["reading metadata"] == told.total["encoding"] == 10
    assert "10 pictures" in told.said[-1]
    assert 0 < report.encoder_seconds <= report.seconds <= time.perf_counter() - begin


def test_a_centred_bank_keeps_its_means_and_centres_queries(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    plain = Gallery.build(tmp_path / "plain", tmp_path / "p", "fake")
    centred = Gallery.build(tmp_path / "centred", tmp_path / "p", "fake", centre=True)
    assert centred.card.extractor == "tokens+centred"
    raw = plain.gather(plain.rows).decoded().astype(np.float32)
    moved = raw - np.array(centred.manifest.image_mean, np.float32)
    moved /= np.linalg.norm(moved, axis=-1, keepdims=True)
    assert np.abs(centred.gather(centred.rows).decoded() - moved).max() < 3e-3
    assert np.allclose(raw.mean(axis=(0, 1)), np.array(centred.manifest.image_mean), atol=1e-3)
    again = Gallery.open(tmp_path / "centred")
    assert np.allclose(again.encoder.encode_atoms(["red"]), centred.encoder.encode_atoms(["red"]))
    assert not np.allclose(again.encoder.encode_atoms(["red"]), plain.encoder.encode_atoms(["red"]))
    with pytest.raises(BadInput, match="centring"):
        Gallery.build(tmp_path / "plain", tmp_path / "p", centre=True)
