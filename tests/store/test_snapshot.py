"""Readers see one state of a gallery, whole, whatever index runs do meanwhile."""

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr import BadInput, Gallery, TaprError
from tapr.encoders.fake import FakeEncoder
from tapr.index import run
from tapr.index.options import IndexOptions
from tapr.store.catalog import Catalog, Entry
from tests.pictures import SOME_FLAGS, flag, png, write_flags
from tests.refusals import refused

_SYNC = """
import sys
from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
Gallery.build(sys.argv[1], sys.argv[2], FakeEncoder())
"""


# each round other pictures, so that rows die and shards are rewritten
_SYNC_AGAIN_AND_AGAIN = """
import sys
from pathlib import Path
from PIL import Image
from tapr import Gallery
from tapr.encoders.fake import FakeEncoder

for number in range(int(sys.argv[3])):
    for path in Path(sys.argv[2]).iterdir():
        path.unlink()
    for i in range(20):
        Image.new("RGB", (8, 8), (number * 37 % 256, i * 12, (number + i) * 5 % 256)).save(
            f"{sys.argv[2]}/{number}-{i}.png"
        )
    Gallery.build(sys.argv[1], sys.argv[2], FakeEncoder())
"""


def sync_elsewhere(gallery: Path, pictures: Path) -> None:
    subprocess.run([sys.executable, "-c", _SYNC, str(gallery), str(pictures)], check=True)


def answers(gallery: Gallery) -> dict[str, list[float]]:
    """What a reader can be told: the vectors of each id."""
    block = gallery.gather(gallery.rows)
    return dict(zip(gallery.ids(), block.global_vectors.tolist(), strict=True))


def truth(*flags: tuple[str, ...]) -> dict[str, list[float]]:
    encoder = FakeEncoder()
    evidence = encoder.encode_images([encoder.prepare(flag(*colours)) for colours in flags])
    names = ["-".join(colours) + ".png" for colours in flags]
    return dict(zip(names, evidence.global_vectors.astype(np.float16).tolist(), strict=True))


class Interrupted(Exception):
    pass


class Stops(FakeEncoder):
    """Does its work and is then killed, as far as the gallery can tell."""

    def encode_images(self, prepared):  # type: ignore[no-untyped-def]
        raise Interrupted


def test_an_open_reader_is_right_during_and_after_another_process_s_sync(tmp_path: Path) -> None:
    _, b_blue = write_flags(tmp_path / "p", [("red",), ("blue",)])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    reader = Gallery.open(tmp_path / "g", encoder=FakeEncoder())
    narrowed = reader.select("id = 'blue.png'")
    b_blue.unlink()
    write_flags(tmp_path / "p", [("green",)])
    sync_elsewhere(tmp_path / "g", tmp_path / "p")
    assert answers(reader) == truth(("red",), ("blue",))
    assert answers(narrowed) == truth(("blue",))
    assert reader.select("id = 'blue.png'").ids() == ["blue.png"]
    assert reader.find("green.png") is None
    assert answers(Gallery.open(tmp_path / "g", encoder=FakeEncoder())) == truth(("red",), ("green",))


def test_an_index_run_that_is_stopped_midway_changes_nothing_for_readers(tmp_path: Path) -> None:
    red, _ = write_flags(tmp_path / "p", [("red",), ("blue",)])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    reader = Gallery.open(tmp_path / "g", encoder=FakeEncoder())
    red.unlink()
    write_flags(tmp_path / "p", [("green",)])
    with pytest.raises(Interrupted):
        Gallery.build(tmp_path / "g", tmp_path / "p", Stops())
    for gallery in (reader, Gallery.open(tmp_path / "g", encoder=FakeEncoder())):
        assert answers(gallery) == truth(("red",), ("blue",))
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    assert answers(gallery) == truth(("blue",), ("green",))


def test_old_shards_are_readable_for_those_who_opened_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "p").mkdir()
    for i in range(60):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / "p" / f"{i:03d}.png")
    reader = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    before = answers(Gallery.open(tmp_path / "g"))
    for i in range(5, 60):
        (tmp_path / "p" / f"{i:03d}.png").unlink()
    sync_elsewhere(tmp_path / "g", tmp_path / "p")
    assert not (tmp_path / "g" / "global-0-00000.npy").exists()
    assert answers(reader) == before
    assert len(Gallery.open(tmp_path / "g")) == 5


def test_keys_are_never_given_twice(tmp_path: Path) -> None:
    catalog = Catalog.create(tmp_path / "c.sqlite", "a gallery")
    catalog.put(Entry("a", "/a", 1, 1, ""))
    before = catalog.entries()[0].key
    catalog.remove(["/a"])
    catalog.put(Entry("b", "/b", 1, 1, ""))
    after = catalog.entries()[0].key
    assert before is not None
    assert after is not None
    assert after > before


def _what_a_hit_should_be(name: str) -> list[float]:
    number, i = map(int, name.removesuffix(".png").split("-"))
    encoder = FakeEncoder()
    picture = Image.new("RGB", (8, 8), (number * 37 % 256, i * 12, (number + i) * 5 % 256))
    vectors = encoder.encode_images([encoder.prepare(picture)]).global_vectors
    return list(vectors[0].astype(np.float16).tolist())


def test_readers_never_see_a_mixture_while_another_process_syncs(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    command = [sys.executable, "-c", _SYNC_AGAIN_AND_AGAIN, str(tmp_path / "g"), str(tmp_path / "p")]
    subprocess.run([*command, "1"], check=True)
    held = Gallery.open(tmp_path / "g")
    at_first = answers(held)
    writer = subprocess.Popen([*command, "12"])
    seen = set()
    while writer.poll() is None:
        gallery = Gallery.open(tmp_path / "g")
        told = answers(gallery)
        assert len(told) == 20
        assert len({name.split("-")[0] for name in told}) == 1  # one round's pictures, all of them
        name, vector = next(iter(told.items()))
        assert vector == _what_a_hit_should_be(name)
        assert answers(held) == at_first
        seen.add(name.split("-")[0])
    assert writer.returncode == 0
    assert len(seen) > 1  # the writer was at work meanwhile
    left = sorted(path.name.split("-")[0] for path in (tmp_path / "g").iterdir())
    assert left == [".lock", ".lock.queue", "catalog", "global", "local", "manifest.json"]


def test_a_sync_that_finds_nothing_new_publishes_nothing(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "g").iterdir()}
    report = gallery.sync()
    assert report.unchanged == report.pictures == 10
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "g").iterdir()}
    for name in (".lock", ".lock.queue"):
        del before[tmp_path / "g" / name], after[tmp_path / "g" / name]
    assert after == before


# what is lost or left half done


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_lost_shard_is_refused_by_readers_and_by_index_runs(tmp_path: Path, damage: str) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:4])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    shard = tmp_path / "g" / "local-0-00000.npy"
    whole = shard.read_bytes()
    shard.unlink() if damage == "gone" else shard.write_bytes(whole[:-1])
    write_flags(tmp_path / "p", SOME_FLAGS[4:])
    for use in (
        gallery.sync,
        lambda: Gallery.build(tmp_path / "g", tmp_path / "p"),
        lambda: Gallery.open(tmp_path / "g"),
    ):
        with pytest.raises(
            TaprError, match=r"local-0-00000.npy.*(no such file|shorter than the 4 rows).*mend it with tapr repair"
        ):
            use()
    assert damage == "short" or not shard.exists()
    shard.write_bytes(whole)
    assert gallery.sync().encoded == 6


def test_rows_of_a_stopped_run_that_are_lost_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:4])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    shard = tmp_path / "g" / "local-0-00000.npy"
    published = shard.read_bytes()
    write_flags(tmp_path / "p", SOME_FLAGS[4:])
    with monkeypatch.context() as patch:
        patch.setattr(run, "compact", Stops().encode_images)
        with pytest.raises(TypeError):  # after everything was encoded and committed to the draft
            Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    assert shard.stat().st_size > len(published)
    shard.write_bytes(published)  # a power cut
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    assert answers(gallery) == truth(*SOME_FLAGS)


def test_a_run_that_was_killed_while_it_made_the_gallery_is_no_dead_end(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    folder = tmp_path / "g"
    folder.mkdir()
    for name in (
        ".lock",
        ".lock.queue",
        ".lock.holder",
        "catalog-0.sqlite",
        "catalog-0.sqlite-journal",
        "catalog.sqlite",
        ".manifest.json.0123abcd",
    ):
        (folder / name).write_bytes(b"half")
    gallery = Gallery.build(folder, tmp_path / "p", FakeEncoder())
    assert gallery.ids() == ["red.png"]
    (folder / "manifest.json").unlink()
    with pytest.raises(BadInput, match=r"holds vectors of a gallery and no manifest.json"):
        Gallery.build(folder, tmp_path / "p", FakeEncoder())
    assert (folder / "global-0-00000.npy").exists()


def test_two_runs_that_make_a_gallery_at_once_do_not_mix_encoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has had its first look at the folder, and is overtaken while it loads its encoder."""
    write_flags(tmp_path / "p", SOME_FLAGS)

    def overtaken(options: Any, progress: Any) -> Any:
        monkeypatch.undo()
        Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
        return options.encoder

    monkeypatch.setattr(IndexOptions, "new_encoder", overtaken)
    with pytest.raises(BadInput, match=r"made with grid \(3, 3\)"):
        Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(grid=(2, 2)))
    shutil.rmtree(tmp_path / "g")
    monkeypatch.setattr(IndexOptions, "new_encoder", overtaken)
    with pytest.raises(BadInput, match="made with precision 'fp16', not 'int8'"):
        Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "int8")
    assert answers(Gallery.open(tmp_path / "g")) == truth(*SOME_FLAGS)


def test_many_runs_that_begin_at_once_make_one_gallery(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    start = threading.Barrier(4)
    outcomes: list[str] = []

    def run(grid: int) -> None:
        start.wait()
        try:
            Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(grid=(grid, grid)))
            outcomes.append("made")
        except BadInput as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=run, args=(grid,)) for grid in (2, 3, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "made" in outcomes
    gallery = Gallery.open(tmp_path / "g")
    encoder = FakeEncoder(grid=gallery.card.grid)
    expected = Gallery.build(tmp_path / "alone", tmp_path / "p", encoder)
    assert answers(gallery) == answers(expected)
    assert np.array_equal(gallery.gather(gallery.rows).decoded(), expected.gather(expected.rows).decoded())


def test_files_of_a_gallery_honour_the_umask(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    before = os.umask(0o077)
    try:
        Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "g").iterdir()} == {0}


def test_a_gallery_is_read_without_tapr_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "format.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "gallery", tmp_path / "p", FakeEncoder())
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(
        code.replace("json.load(open(", "json.loads(Path(").replace('json"))', 'json").read_text())'),
        {"Path": Path},
        names,
    )
    names["db"].close()
    assert names["id_"] == gallery.ids()[-1]
    assert np.array_equal(names["local"], gallery.gather(gallery.rows[-1:]).decoded()[0])


# captions


def test_an_index_run_can_describe_each_picture(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    (tmp_path / "p" / "copy.png").write_bytes(png(flag("red")))
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    gallery.sync(drop=[tmp_path / "p"])
    told: list[int] = []

    def describe(evidence: Any) -> list[str]:
        told.append(len(evidence))
        return [f"picture {vectors.argmax()}" for vectors in evidence.global_vectors]

    gallery.sync([tmp_path / "p"], describe=describe)
    assert sum(told) == 10
    entries = {entry.id: entry for entry in gallery.entries(range(len(gallery)))}
    assert all(str(entry.caption).startswith("picture ") for entry in entries.values())
    assert entries["copy.png"].caption == entries["red.png"].caption
    assert len(gallery.select("caption contains 'PICTURE'")) == 11


def test_a_catalogue_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    """Python 3.13 and newer warn of every connection that was left open."""
    catalog = Catalog.create(tmp_path / "catalog.sqlite", "a gallery")
    connection = catalog._db
    connection.execute("SELECT 1")
    del catalog
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_catalogue_of_another_format_is_refused(tmp_path: Path) -> None:
    Catalog.create(tmp_path / "catalog-1.sqlite", "a gallery").close()
    with sqlite3.connect(tmp_path / "catalog-1.sqlite") as db:
        db.execute("PRAGMA user_version = 4")
    db.close()
    with refused("no_gallery", "format version 4", "this tapr reads 7"):
        Catalog.open(tmp_path / "catalog-1.sqlite")
