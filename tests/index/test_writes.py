"""Pictures put and deleted one by one: what stays, through index runs, repairs, moves and kills."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput, Unavailable
from tapr.gallery import Gallery
from tapr.images.decode import BadImage
from tapr.index.apply_writes import StoppedRun
from tapr.store.catalog import Catalog
from tapr.store.layout import catalog_path
from tapr.store.lock import WriterBusy, holder_of, writer_lock
from tapr.store.snapshot import ALONE
from tapr.store.verify import verify
from tapr.store.write_operations import Content, Delete, KeyReused, Put, UnknownId, WriteResult
from tests.pictures import flag, png
from tests.refusals import refused

RED, BLUE, GREEN = (png(flag(colour, size=(40, 30))) for colour in ("red", "blue", "green"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for name in ("black", "white", "yellow"):
        flag(name, size=(40, 30)).save(pictures / f"{name}.png")
    return pictures


@pytest.fixture
def gallery(tmp_path: Path, folder: Path) -> Gallery:
    return Gallery.build(tmp_path / "bank", folder, FakeEncoder())


def ids(gallery: Gallery) -> set[str]:
    return set(gallery.reopen(gallery.encoder).ids())


def test_a_picture_is_put_replaced_and_deleted(gallery: Gallery) -> None:
    made = gallery.put("shop/1", RED, {"price": 40})
    assert (made.done, made.width, made.height) == ("created", 40, 30)
    assert made.snapshot == gallery.manifest.snapshot
    entry = gallery.find("shop/1")
    assert entry is not None
    assert (Path(entry.path).read_bytes(), entry.metadata) == (RED, {"price": 40})
    assert gallery.put("shop/1", BLUE).done == "replaced"
    assert not os.path.exists(entry.path), "the replaced file is deleted"
    entry = gallery.find("shop/1")
    assert entry is not None
    assert entry.metadata == {"price": 40}, "without metadata the old one stays"
    assert gallery.select("price = 40").ids() == ["shop/1"]
    assert gallery.put("shop/1", metadata={"price": 30}).done == "replaced"
    assert gallery.select("price = 30").ids() == ["shop/1"]
    assert gallery.put("shop/1", BLUE, {"price": 30}).done == "unchanged"
    assert gallery.delete("shop/1").done == "deleted"
    assert ids(gallery) == {"black.png", "white.png", "yellow.png"}
    with pytest.raises(UnknownId, match="no picture with the id 'shop/1'"):
        gallery.delete("shop/1")
    assert not verify(gallery.path).damage


def test_its_vectors_are_those_of_an_index_run(gallery: Gallery, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "red.png").write_bytes(RED)
    indexed = Gallery.build(tmp_path / "other-bank", tmp_path / "other", FakeEncoder())
    gallery.put("red", RED)
    ours = gallery.gather(gallery.rows[[gallery.position_of("red")]])
    theirs = indexed.gather(indexed.rows)
    assert np.array_equal(ours.global_vectors, theirs.global_vectors)
    assert np.array_equal(ours.decoded(), theirs.decoded())


def test_equal_pictures_share_a_row_and_each_keeps_its_file(gallery: Gallery) -> None:
    rows = gallery.row_count
    gallery.put("a", RED)
    gallery.put("b", RED)
    assert gallery.row_count == rows + 1
    gallery.delete("a")
    entry = gallery.find("b")
    assert entry is not None
    assert Path(entry.path).read_bytes() == RED


def test_index_runs_leave_it_in_place(gallery: Gallery, folder: Path) -> None:
    gallery.put("black.png", RED, {"price": 1})  # of the folder: replaced
    gallery.put("mine", BLUE)
    gallery.delete("white.png")
    flag("green", size=(40, 30)).save(folder / "green.png")
    for _ in range(2):
        report = gallery.sync()
        assert not report.failures
        assert ids(gallery) == {"black.png", "mine", "yellow.png", "green.png"}
        entry = gallery.find("black.png")
        assert entry is not None
        assert (Path(entry.path).read_bytes(), entry.metadata) == (RED, {"price": 1})
    assert (folder / "white.png").exists(), "files of the sources are never touched"
    (folder / "white.png").unlink()
    gallery.sync()
    flag("white", size=(40, 30)).save(folder / "white.png")
    gallery.sync()
    assert "white.png" in ids(gallery), "a file that comes back is a new picture"


def test_a_file_of_the_same_name_does_not_take_its_id(gallery: Gallery, folder: Path) -> None:
    gallery.put("new.png", RED)
    (folder / "new.png").write_bytes(BLUE)
    gallery.sync()
    entry = gallery.find("new.png")
    assert entry is not None
    assert Path(entry.path).read_bytes() == RED
    assert "pictures/new.png" in ids(gallery)


def test_a_gallery_that_is_moved_takes_its_uploads_along(gallery: Gallery, tmp_path: Path) -> None:
    gallery.put("mine", BLUE)
    shutil.move(gallery.path, tmp_path / "elsewhere")
    moved = Gallery.open(tmp_path / "elsewhere", encoder=FakeEncoder())
    entry = moved.find("mine")
    assert entry is not None
    assert Path(entry.path).read_bytes() == BLUE
    assert not moved.sync().failures
    assert "mine" in ids(moved)


def test_repair_encodes_it_again(gallery: Gallery) -> None:
    gallery.put("mine", BLUE)
    before = gallery.gather(gallery.rows).decoded()
    shard = gallery.path / "local-0-00000.npy"
    data = bytearray(shard.read_bytes())
    data[-3] ^= 0x55
    shard.write_bytes(data)
    repaired, done = Gallery.repair(gallery.path, encoder=FakeEncoder())
    assert done.encoded > 0
    assert not done.lost
    assert np.array_equal(repaired.gather(repaired.rows).decoded(), before)
    assert not verify(gallery.path).damage


def test_dead_rows_are_compacted_away(gallery: Gallery) -> None:
    for number in range(40):
        gallery.put("mine", png(flag("red", "blue", size=(30 + number, 20))))
    assert gallery.row_count < 30
    assert ids(gallery) == {"black.png", "white.png", "yellow.png", "mine"}
    assert not verify(gallery.path).damage
    assert len(list((gallery.path / "uploads").rglob("*.png"))) == 1


def test_a_gallery_inside_the_indexed_folder_does_not_index_its_uploads(tmp_path: Path) -> None:
    flag("black", size=(40, 30)).save(tmp_path / "black.png")
    gallery = Gallery.build(tmp_path / "bank", tmp_path, FakeEncoder())
    gallery.put("mine", RED)
    gallery.sync()
    assert ids(gallery) == {"black.png", "mine"}


def test_operations_of_one_call_are_applied_in_order(gallery: Gallery) -> None:
    encoder = gallery.encoder
    snapshot = gallery.manifest.snapshot or 0
    outcomes = gallery.apply(
        [
            Put("a", Content.of(RED, encoder)),
            Delete("a"),
            Delete("a"),
            Put("a", Content.of(BLUE, encoder), {"n": 1}),
            Put("a", None, {"n": 2}),
            Put("nobody", None, {"n": 2}),
        ]
    )
    said = [outcome.done if isinstance(outcome, WriteResult) else type(outcome).__name__ for outcome in outcomes]
    assert said == ["created", "deleted", "UnknownId", "created", "replaced", "UnknownId"]
    assert gallery.manifest.snapshot == snapshot + 1, "one snapshot for all"
    entry = gallery.find("a")
    assert entry is not None
    assert (Path(entry.path).read_bytes(), entry.metadata) == (BLUE, {"n": 2})


def test_nothing_is_published_where_nothing_changes(gallery: Gallery) -> None:
    gallery.put("a", RED)
    before = gallery.published()
    gallery.put("a", RED)
    with pytest.raises(UnknownId):
        gallery.delete("nobody")
    with pytest.raises(UnknownId):
        gallery.put("nobody", metadata={})
    assert gallery.published() == before


def test_the_same_key_is_done_once(gallery: Gallery) -> None:
    first = Put("a", Content.of(RED, gallery.encoder), key="k", request="1")
    (made,) = gallery.apply([first])
    gallery.put("a", BLUE)
    (again,) = gallery.apply([first])
    assert again == made
    entry = gallery.find("a")
    assert entry is not None
    assert Path(entry.path).read_bytes() == BLUE, "it was not done again"
    (other,) = gallery.apply([Delete("a", key="k", request="2")])
    assert isinstance(other, KeyReused)
    twice = gallery.apply([Delete("a", "d", "3"), Delete("a", "d", "3")])
    assert twice[0] == twice[1]


@pytest.mark.parametrize(
    ("id_", "metadata", "sentence"),
    [
        ("", None, "needs an id"),
        ("a\0b", None, "zero character"),
        ("\ud800", None, "surrogate"),
        ("x" * 1001, None, "more than the 1,000"),
        ("a", {"x": "y" * 70_000}, "65,536 bytes"),
        ("a", {"x": "\ud800"}, "surrogate"),
        ("a", {"x": object()}, "cannot be kept as JSON"),
        ("a", {"": 1}, "JSON object"),
    ],
)
def test_what_cannot_be_kept_is_refused(gallery: Gallery, id_: str, metadata: dict[str, object], sentence: str) -> None:
    before = gallery.published()
    with pytest.raises(BadInput, match=sentence):
        gallery.put(id_, RED, metadata)
    assert gallery.published() == before


def test_what_is_no_picture_is_refused(gallery: Gallery) -> None:
    with pytest.raises(BadImage, match="the picture is not a picture"):
        gallery.put("a", b"no picture")


def test_a_declared_column_holds(gallery: Gallery) -> None:
    gallery.put("a", RED, {"price": "40"})
    gallery.sync(columns={"price": "number"})
    with pytest.raises(BadInput, match="'price' is declared a number"):
        gallery.put("b", BLUE, {"price": "cheap"})
    gallery.put("b", BLUE, {"price": "30"})
    assert set(gallery.select("price < 50").ids()) == {"a", "b"}
    gallery.put("c", GREEN, {"other": True})  # a new column
    assert gallery.select("other = true").ids() == ["c"]


def test_one_writer_at_a_time(gallery: Gallery) -> None:
    with writer_lock(gallery.path, "somebody"), pytest.raises(WriterBusy, match=r"somebody .*wait for it to end"):
        gallery.apply([Delete("a")], wait=0)
    with pytest.raises(BadInput, match="0 seconds or more"):
        gallery.apply([Delete("a")], wait=-1)


def test_a_writer_waits_for_its_turn(gallery: Gallery) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with writer_lock(gallery.path):
            held.set()
            let_go.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(60)
    waiting = threading.Thread(target=lambda: gallery.put("late", RED))
    waiting.start()
    let_go.set()
    for thread in (other, waiting):
        thread.join(60)
    assert gallery.find("late") is not None


def test_a_writer_that_comes_back_at_once_stands_behind_those_who_wait(gallery: Gallery) -> None:
    turns, begun, done = list[str](), threading.Event(), threading.Event()

    def greedy() -> None:
        while not done.is_set():
            with writer_lock(gallery.path):
                turns.append("greedy")
                begun.set()
                time.sleep(0.01)

    thread = threading.Thread(target=greedy)
    thread.start()
    begun.wait(60)
    patient = []
    for _ in range(5):
        before = len(turns)
        with writer_lock(gallery.path, wait=60):
            patient.append(len(turns) - before)
    done.set()
    thread.join(60)
    assert len(patient) == 5  # without a queue it hardly ever gets the lock: each try comes between two greedy turns
    assert sum(patient) < 200


def test_a_stopped_index_run_is_not_undone(gallery: Gallery, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        flag("red", "green", size=(30 + number, 20)).save(folder / f"more{number}.png")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tapr.index.run.compact", stop)
    with pytest.raises(KeyboardInterrupt):
        gallery.sync()
    with pytest.raises(StoppedRun, match="run tapr index again"):
        gallery.put("a", RED)
    assert issubclass(StoppedRun, Unavailable)
    monkeypatch.undo()
    assert gallery.sync().encoded == 0, "the stopped run had encoded all"
    gallery.put("a", RED)


def stopped_put(gallery: Gallery, monkeypatch: pytest.MonkeyPatch, where: str) -> Path:
    """A write that ends there; -> the name that its catalogue would have got."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, stop)
        with pytest.raises(KeyboardInterrupt):
            gallery.put("a", RED)
    return catalog_path(gallery.path, (gallery.manifest.snapshot or 0) + 1)


def test_a_write_that_was_killed_before_its_manifest_is_discarded(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = stopped_put(gallery, monkeypatch, "tapr.store.layout.Manifest.write")
    assert named.exists(), "the draft has its name, and nobody points to it"
    gallery.sync()
    assert ids(gallery) == {"black.png", "white.png", "yellow.png"}
    gallery.put("a", RED)
    assert "a" in ids(gallery)


def test_leftovers_of_a_killed_write_are_discarded(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    named = stopped_put(gallery, monkeypatch, "tapr.index.apply_writes.compact")
    draft = named.with_name(f".{named.name}.alone")
    left = Catalog.open(draft, published=False)
    assert left.get_state(ALONE) == (gallery.manifest.snapshot or 0) + 1
    left.close()
    gallery.sync()
    assert ids(gallery) == {"black.png", "white.png", "yellow.png"}
    assert not draft.exists()
    assert not list((gallery.path / "uploads").rglob("*.png")), "and its file is swept away"
    gallery.put("a", RED)
    assert "a" in ids(gallery)


def test_the_name_of_the_lock_holder_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "letter").write_bytes(b"dear")
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / ".lock.holder").symlink_to(tmp_path / "letter")
    with writer_lock(tmp_path / "g", "a test"):
        assert "a test" in holder_of(tmp_path / "g")
    assert (tmp_path / "letter").read_bytes() == b"dear"
    (tmp_path / "g" / ".lock.holder").symlink_to(tmp_path / "letter")
    assert holder_of(tmp_path / "g") == "another program"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("nan")], {"a": float("-inf")}])
def test_a_number_that_json_does_not_have_is_refused(value: object) -> None:
    with refused("bad_input"):
        Put("id", None, {"price": value})
