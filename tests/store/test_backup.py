"""Backups: whole, of one state, also while others write; and galleries made from them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tapr import Gallery, TaprError
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.store.backup import copy_gallery
from tapr.store.verify import verify
from tests.cli.terminal import run
from tests.damaged import forge
from tests.pictures import flag, png, write_flags
from tests.refusals import refused

RED = png(flag("red", size=(40, 30)))


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", [("red",), ("blue",), ("green", "white")])
    made = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    made.put("put", RED, {"price": 4})
    return made


def test_a_backup_is_a_gallery_and_so_is_what_is_restored_from_it(gallery: Gallery, tmp_path: Path) -> None:
    assert run("backup", tmp_path / "b", "-g", gallery.path).code == 0
    gallery.delete("put")
    assert run("restore", tmp_path / "b", "-g", tmp_path / "again").code == 0
    again = Gallery.open(tmp_path / "again", encoder=FakeEncoder())
    assert set(again.ids()) == {"put", "red.png", "blue.png", "green-white.png"}
    entry = again.find("put")
    assert entry is not None
    assert Path(entry.path).read_bytes() == RED
    assert Path(entry.path).is_relative_to(tmp_path / "again")
    assert again.select("price = 4").ids() == ["put"]
    assert verify(again.path).is_whole
    again.put("more", RED)
    assert again.sync().encoded == 0


def test_a_backup_while_others_write_is_one_state(gallery: Gallery, tmp_path: Path) -> None:
    states, stop, begun = [set(gallery.ids())], threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            after = states[-1] ^ {f"n{number % 3}"}
            states.append(after)
            if f"n{number % 3}" in after:
                gallery.put(f"n{number % 3}", png(flag("black", size=(40 + number % 50, 30))))
            else:
                gallery.delete(f"n{number % 3}")
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(60)
    try:
        for number in range(6):
            copied = copy_gallery(gallery.path, tmp_path / f"b{number}")
            kept = Gallery.open(tmp_path / f"b{number}", encoder=FakeEncoder())
            assert set(kept.ids()) in states
            assert len(kept) == copied.pictures
    finally:
        stop.set()
        writer.join(60)


def test_damage_is_not_copied_as_if_it_were_whole(gallery: Gallery, tmp_path: Path) -> None:
    entry = gallery.find("put")
    assert entry is not None
    Path(entry.path).write_bytes(b"other bytes")
    with pytest.raises(TaprError, match="damaged"):
        copy_gallery(gallery.path, tmp_path / "b")
    assert not (tmp_path / "b" / "manifest.json").exists()
    Path(entry.path).write_bytes(RED)
    assert copy_gallery(gallery.path, tmp_path / "c").pictures == 4


@pytest.mark.parametrize("path", ["uploads/../../x", "uploads/ab/../../../x", "/tmp/x"])
def test_a_forged_backup_creates_nothing_outside_its_target(gallery: Gallery, tmp_path: Path, path: str) -> None:
    copy_gallery(gallery.path, tmp_path / "b")
    (tmp_path / "x").write_bytes(RED)
    forge(tmp_path / "b", "UPDATE images SET path = ? WHERE source = 'uploads'", path)
    before = {file for file in tmp_path.rglob("*") if not file.is_relative_to(tmp_path / "new")}
    with refused("outside_folder", path):
        copy_gallery(tmp_path / "b", tmp_path / "new" / "again")
    assert {file for file in tmp_path.rglob("*") if not file.is_relative_to(tmp_path / "new")} == before
    assert not (tmp_path / "new" / "again" / "manifest.json").exists()
    assert run("restore", tmp_path / "b", "-g", tmp_path / "more").code == 2


def test_no_link_is_followed_out_of_a_backup(gallery: Gallery, tmp_path: Path) -> None:
    copy_gallery(gallery.path, tmp_path / "b")
    shard = tmp_path / "b" / "local-0-00000.npy"
    shard.rename(tmp_path / "elsewhere.npy")
    shard.symlink_to(tmp_path / "elsewhere.npy")
    with refused("outside_folder", str(shard)):
        copy_gallery(tmp_path / "b", tmp_path / "again")


def test_nothing_is_written_over(gallery: Gallery, tmp_path: Path) -> None:
    copy_gallery(gallery.path, tmp_path / "b")
    for target in (tmp_path / "b", tmp_path / "p", gallery.path):
        with pytest.raises(BadInput, match="name a new folder"):
            copy_gallery(gallery.path, target)
    assert run("restore", tmp_path / "nothing", "-g", tmp_path / "x").code == 2
