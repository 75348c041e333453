"""Sources that are away, empty, unreadable, dropped or moved."""

import os
import shutil
from pathlib import Path

import pytest

from tapr import BadInput, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.index.ids import hidden_id
from tapr.store.layout import PARTS
from tests.pictures import write_flags


class NeverAgain(FakeEncoder):
    def encode_images(self, prepared):  # type: ignore[no-untyped-def]
        raise AssertionError("nothing should be encoded")


def build(folder: Path, *names: str) -> Gallery:
    for name in names:
        write_flags(folder / name, [("red",), ("blue",)])
    return Gallery.build(folder / "g", [folder / name for name in names], FakeEncoder())


def test_a_folder_that_was_renamed_can_be_indexed_under_its_new_name(tmp_path: Path) -> None:
    build(tmp_path, "a")
    (tmp_path / "a").rename(tmp_path / "b")
    gallery = Gallery.build(tmp_path / "g", tmp_path / "b", NeverAgain())
    report = gallery.report
    assert report is not None
    assert (report.kept, report.shared) == (2, 2)  # it may also be a copy: nothing is forgotten unasked
    assert sorted(gallery.ids()) == ["b/blue.png", "b/red.png", "blue.png", "red.png"]
    gallery.sync(drop=[tmp_path / "a"])
    assert sorted(gallery.ids()) == ["blue.png", "red.png"]
    assert gallery.sources() == [str(tmp_path / "b")]
    assert {entry.path for entry in gallery.entries([0, 1])} == {
        str(tmp_path / "b" / f"{c}.png") for c in ("red", "blue")
    }


def test_a_source_is_moved_without_encoding_anything_again(tmp_path: Path) -> None:
    gallery = build(tmp_path, "a", "other")
    before = sorted(gallery.ids())
    (tmp_path / "a").rename(tmp_path / "b")
    gallery = Gallery.open(tmp_path / "g", encoder=NeverAgain())
    report = gallery.sync(move={str(tmp_path / "a"): str(tmp_path / "b")})
    assert (report.renamed, report.away) == (2, [])
    assert sorted(gallery.ids()) == before
    assert gallery.sources() == [str(tmp_path / "b"), str(tmp_path / "other")]
    assert gallery.find("red.png").path == str(tmp_path / "b" / "red.png")  # type: ignore[union-attr]


def test_entries_of_unavailable_sources_are_kept(tmp_path: Path) -> None:
    gallery = build(tmp_path, "a", "b")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b" / "red.png").unlink()
    report = gallery.sync()
    assert (report.kept, report.removed) == (2, 1)
    assert gallery.pictures_by_source() == {str(tmp_path / "a"): 2, str(tmp_path / "b"): 1}
    assert gallery.sync(drop=[str(tmp_path / "a")]).removed == 2
    assert gallery.ids() == ["blue.png"]  # the id is free again


@pytest.mark.parametrize("kind", ["folder", "table", "list", "glob"])
def test_every_kind_of_source_may_be_away(tmp_path: Path, kind: str) -> None:
    write_flags(tmp_path / "p", [("red",)])
    (tmp_path / "t.csv").write_text("path\np/red.png\n")
    (tmp_path / "l.txt").write_text("p/red.png\n")
    source = tmp_path / {"folder": "p", "table": "t.csv", "list": "l.txt", "glob": "p/*.png"}[kind]
    gallery = Gallery.build(tmp_path / "g", source, FakeEncoder())
    (tmp_path / source.relative_to(tmp_path).parts[0]).rename(tmp_path / "away")
    assert gallery.sync().kept == 1
    assert len(gallery) == 1


def test_a_mount_point_without_its_drive_is_not_taken_for_deleted_pictures(tmp_path: Path) -> None:
    gallery = build(tmp_path, "drive")
    for path in (tmp_path / "drive").iterdir():
        path.unlink()
    report = gallery.sync()
    assert report.kept == 2
    assert "there are no pictures in the folder" in report.away[0][1]
    with pytest.raises(BadInput, match="tapr sources --drop"):  # named again, it is an error that says what to do
        Gallery.build(tmp_path / "g", tmp_path / "drive", FakeEncoder())


def test_a_source_without_pictures_is_an_error_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.doc").write_text("words")
    with pytest.raises(BadInput, match="there are no pictures in the folder"):
        Gallery.build(tmp_path / "g", tmp_path / "none", FakeEncoder())
    assert not (tmp_path / "g").exists()
    gallery = build(tmp_path, "a")
    with pytest.raises(BadInput, match="nothing was changed"):
        gallery.sync([tmp_path / "none"])
    assert gallery.sources() == [str(tmp_path / "a")]


def test_an_unreadable_folder_is_told_and_its_pictures_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_flags(tmp_path / "p", [("red",)])
    write_flags(tmp_path / "p" / "private", [("blue",)])
    write_flags(tmp_path / "p" / "privateer", [("green",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    listed = os.scandir

    def refused(path: str | int) -> object:  # as for any user but root, who may read everything
        if Path(str(path)).name == "private":
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    (tmp_path / "p" / "privateer" / "green.png").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("tapr.index.sources.os.scandir", refused)
        report = gallery.sync()
    assert (report.removed, report.kept) == (1, 1)
    assert gallery.ids() == ["red.png", "private/blue.png"]
    ((path, reason),) = report.left_out
    assert path == str(tmp_path / "p" / "private")
    assert reason == "cannot be listed (permission denied): pictures known from there are kept"
    assert gallery.sync().unchanged == 2


def test_sources_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    gallery = build(tmp_path, "a")
    with pytest.raises(BadInput, match=f"'b' is not a source of the gallery: its sources are {tmp_path / 'a'}"):
        gallery.sync(drop=["b"])
    with pytest.raises(BadInput, match="no file or folder"):
        gallery.sync(move=[(str(tmp_path / "a"), str(tmp_path / "nowhere"))])
    assert gallery.sync().unchanged == 2


def test_a_picture_whose_id_was_taken_by_a_stopped_run_gets_another(tmp_path: Path) -> None:
    class Stops(FakeEncoder):
        def encode_images(self, prepared):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    write_flags(tmp_path / "p", [("red",), ("blue",)])
    table = tmp_path / "t.csv"
    table.write_text("path,id\np/red.png,1\np/blue.png,2\n")
    Gallery.build(tmp_path / "g", table, FakeEncoder())
    table.write_text("path,id\np/red.png,2\np/blue.png,1\n")
    write_flags(tmp_path / "q", [("green",)])[0].replace(tmp_path / "p" / "blue.png")
    with pytest.raises(KeyboardInterrupt):
        Gallery.open(tmp_path / "g", encoder=Stops()).sync()
    table.rename(tmp_path / "away.csv")
    gallery = Gallery.open(tmp_path / "g", encoder=FakeEncoder())
    gallery.sync()
    assert sorted(gallery.ids()) == sorted([hidden_id(str(tmp_path / "p" / "blue.png")), "2"])
    (tmp_path / "away.csv").rename(table)
    gallery.sync()
    assert sorted(gallery.ids()) == ["1", "2"]


def test_what_a_killed_run_on_a_cluster_left_goes_when_the_work_is_done(tmp_path: Path) -> None:
    write_flags(tmp_path / "pictures", [("red",)])
    Gallery.build(tmp_path / "bank", tmp_path / "pictures", FakeEncoder())
    left = tmp_path / "bank" / PARTS
    for colour in ("red", "blue"):  # nothing new, and something new
        write_flags(tmp_path / "pictures", [(colour,)])
        left.mkdir()
        (left / "part").write_bytes(b"rows")
        Gallery.build(tmp_path / "bank", tmp_path / "pictures", FakeEncoder())
        assert not left.exists()
