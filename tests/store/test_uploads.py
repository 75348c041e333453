"""The files of pictures that were put one by one: verified, never taken for what they are not, restored if possible."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.store import uploads
from tapr.store.verify import verify
from tests.cli.terminal import run
from tests.damaged import forge
from tests.pictures import flag, png
from tests.refusals import refused

RED, BLUE = (png(flag(colour, size=(40, 30))) for colour in ("red", "blue"))


@pytest.fixture
def shop(tmp_path: Path) -> Gallery:
    (tmp_path / "pictures").mkdir()
    flag("black").save(tmp_path / "pictures" / "black.png")
    gallery = Gallery.build(tmp_path / "bank", tmp_path / "pictures", FakeEncoder())
    gallery.put("sku", RED, {"price": 4})
    return gallery


def file_of(gallery: Gallery, id_: str = "sku") -> Path:
    entry = gallery.find(id_)
    assert entry is not None
    return Path(entry.path)


def keep_time(path: Path, change: Callable[[Path], object]) -> None:
    """Damage of the disk changes no time."""
    before = path.stat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "overwritten": lambda path: path.write_bytes(BLUE),
    "cut": lambda path: os.truncate(path, 20),
    "deleted": lambda path: path.unlink(),
    "a flipped bit": lambda path: keep_time(path, lambda p: p.write_bytes(RED[:-9] + b"X" + RED[-8:])),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_upload_is_named_and_never_taken_for_the_truth(shop: Gallery, what: str) -> None:
    before = shop.find("sku")
    assert verify(shop.path).is_whole
    DAMAGE[what](file_of(shop))
    (hurt,) = verify(shop.path).uploads
    assert hurt.id == "sku"
    report = shop.sync()  # must not encode the damage
    assert report.encoded == 0
    after = shop.find("sku")
    assert after is not None
    assert before is not None
    assert (after.sha256, after.row, after.failure) == (before.sha256, before.row, None)
    assert report.damaged_uploads == ([] if what == "a flipped bit" else [("sku", hurt.reason)])
    _, done = Gallery.repair(shop.path, encoder=FakeEncoder())
    assert done.lost_uploads == [("sku", hurt.reason)]
    assert not verify(shop.path).is_whole
    shop.put("sku", RED)
    assert verify(shop.path).is_whole
    assert file_of(shop).read_bytes() == RED


def test_an_upload_is_restored_from_a_file_of_equal_content(shop: Gallery) -> None:
    shop.put("twin", RED)
    file_of(shop).write_bytes(BLUE)
    _, done = Gallery.repair(shop.path, encoder=FakeEncoder())
    assert (done.restored, done.lost_uploads) == (["sku"], [])
    assert file_of(shop).read_bytes() == RED
    assert verify(shop.path).is_whole


def test_doctor_and_repair_say_so_and_end_with_1(shop: Gallery) -> None:
    file_of(shop).unlink()
    for command in (["doctor", "--verify", "-g", str(shop.path)], ["repair", "-g", str(shop.path)]):
        done = run(*command)
        assert done.code == 1, done.out + done.err
        assert "sku" in done.out


VICTIM = {"letter.txt": b"dear", "deep/photo.png": RED, "ab/" + "a" * 64 + "-" + "b" * 16 + ".png": BLUE}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    for name, data in VICTIM.items():
        (tmp_path / "victim" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "victim" / name).write_bytes(data)
    return tmp_path / "victim"


def is_untouched(victim: Path) -> bool:
    held = {path.relative_to(victim).as_posix(): path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    return held == VICTIM


def test_a_link_named_uploads_deletes_nothing_behind_it(tmp_path: Path, victim: Path) -> None:
    flag("black").save(tmp_path / "black.png")
    gallery = Gallery.build(tmp_path / "bank", tmp_path / "black.png", FakeEncoder())
    (gallery.path / "uploads").symlink_to(victim)
    gallery.sync()
    gallery.writer().sweep_uploads()
    assert is_untouched(victim)
    with refused("outside_folder", str(gallery.path / "uploads")):
        gallery.put("sku", RED)
    assert is_untouched(victim)
    assert gallery.ids() == ["black.png"]


def test_an_upload_behind_a_link_is_damage(shop: Gallery, victim: Path) -> None:
    folder = file_of(shop).parent
    folder.rename(victim.parent / "elsewhere")
    folder.symlink_to(victim.parent / "elsewhere")
    assert [hurt.id for hurt in verify(shop.path).uploads] == ["sku"]


def test_a_sweep_deletes_only_files_that_tapr_names(shop: Gallery) -> None:
    folder = file_of(shop).parent
    left = folder / f"{'c' * 64}-{'d' * 16}.png"
    others = [
        folder / "notes.txt",
        folder / f".{left.name}.tmp",
        folder.parent / left.name,
        folder / "deep" / left.name,
    ]
    for path in (left, folder / f".{left.name}.0123abcd", *others):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(RED)
    shop.sync()
    assert sorted(folder.parent.rglob("*.*")) == sorted([file_of(shop), *others])


FORGED_PATHS = ("uploads/../../x.png", "uploads/ab/../../x.png", "/tmp/x.png", "uploads/x.png", "manifest.json")


@pytest.mark.parametrize("path", FORGED_PATHS)
def test_a_forged_path_of_an_upload_is_refused(shop: Gallery, path: str) -> None:
    (shop.path.parent / "x.png").write_bytes(RED)
    forge(shop.path, "UPDATE images SET path = ? WHERE source = 'uploads'", path)
    forged = Gallery.open(shop.path, encoder=FakeEncoder())
    for use in (lambda: forged.delete("sku"), lambda: forged.put("sku", BLUE), lambda: forged.find("sku"), forged.sync):
        with refused("outside_folder", path):
            use()
    assert (shop.path.parent / "x.png").read_bytes() == RED
    for command in (["doctor", "--verify", "-g", str(shop.path)], ["repair", "-g", str(shop.path)]):
        done = run(*command)
        assert done.code in (1, 2)
        assert "Traceback" not in done.err


def test_a_file_under_another_name_is_damage(shop: Gallery) -> None:
    assert uploads.damage_of(file_of(shop)) is None
    moved = file_of(shop).rename(file_of(shop).with_name("0" * 64 + "-1.png"))
    assert uploads.damage_of(moved) is not None
