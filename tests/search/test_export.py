"""Pictures out of a gallery: in their order, and nothing is overwritten."""

import csv
import errno
import io
import os
import time
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from PIL.ExifTags import IFD

from tapr import BadInput
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.search import export as exporting
from tapr.search.export import LIST, Picture, export, kind_of, zip_of
from tapr.utils import desktop
from tests.cli.terminal import run
from tests.pictures import flag, png, write_flags


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    write_flags(tmp_path / "p" / "a", [("red",), ("blue",)])
    write_flags(tmp_path / "p" / "b", [("red",)])
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    return tmp_path / "g"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def search(bank: Path, *options: str | Path) -> str:
    done = run("search", "-g", bank, "--text", "red", *options)
    assert done.code == 0, done.err
    return done.err


def test_copies_keep_their_order_and_a_second_export_stays_apart(bank: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty folder is used
    assert "wrote copies of 3 pictures" in search(bank, "--export", out)
    assert names(out) == ["01-red.png", "02-red.png", "03-blue.png"]
    assert (out / "03-blue.png").read_bytes() == (tmp_path / "p" / "a" / "blue.png").read_bytes()
    (out / "03-blue.png").write_bytes(b"mine")
    said = search(bank, "--export", out, "-k", "1")
    assert f"{out} holds something already and stays as it is" in said
    assert f"wrote copies of 1 picture: {out}-2" in said
    assert (names(out), names(tmp_path / "out-2")) == (["01-red.png", "02-red.png", "03-blue.png"], ["01-red.png"])
    assert (out / "03-blue.png").read_bytes() == b"mine"


def test_a_hundred_names_have_three_digits(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(png(flag("red")))
    export([Picture(f"{number}.png", str(tmp_path / "x.png")) for number in range(100)], tmp_path / "out", "copy")
    assert names(tmp_path / "out")[::99] == ["001-0.png", "100-99.png"]


def photograph(place: Path) -> Path:
    exif = Image.Exif()
    exif[0x010F] = "A camera"
    exif.get_ifd(IFD.GPSInfo).update({1: "N", 2: (48.0, 51.0, 29.87)})
    flag("red").save(place / "red.jpg", exif=exif)
    return place / "red.jpg"


def location(data: bytes) -> bool:
    return bool(Image.open(io.BytesIO(data)).getexif().get_ifd(IFD.GPSInfo))


@pytest.mark.parametrize("keep", [False, True])
def test_exports_leave_out_where_a_photograph_was_taken(tmp_path: Path, keep: bool) -> None:
    path = photograph(tmp_path)
    picture = Picture("red.jpg", str(path))
    export([picture], tmp_path / "out", "copy", keep_location=keep)
    assert location((tmp_path / "out" / "01-red.jpg").read_bytes()) == keep
    archive = zipfile.ZipFile(export([picture], tmp_path / "x.zip", "zip", keep_location=keep).place)
    assert location(archive.read("01-red.jpg")) == keep
    assert location(path.read_bytes())


def test_a_collage_holds_no_location(tmp_path: Path) -> None:
    photograph(tmp_path)
    Gallery.build(tmp_path / "g", tmp_path / "red.jpg", FakeEncoder())
    for kind in ("jpg", "png"):
        search(tmp_path / "g", "--collage", tmp_path / f"out.{kind}")
        assert not location((tmp_path / f"out.{kind}").read_bytes())


@pytest.mark.parametrize("year", [1970, 1979, 2108, 3000])
def test_a_zip_is_written_whatever_the_clock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, year: int) -> None:
    path = photograph(tmp_path)
    moment = time.struct_time((year, 1, 1, 0, 0, 0, 0, 1, 0))
    monkeypatch.setattr(time, "localtime", lambda *_: moment)
    archive = zipfile.ZipFile(io.BytesIO(b"".join(zip_of([Picture("red.jpg", str(path))]))))
    assert archive.testzip() is None
    assert {item.date_time[0] for item in archive.infolist()} == {1980 if year < 1980 else 2107}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("kind", ["copy", "zip"])
def test_a_named_pipe_holds_no_export(tmp_path: Path, kind: exporting.Kind) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    exported = export([Picture("pipe.png", str(tmp_path / "pipe.png"))], tmp_path / "out", kind)
    assert exported.missing == (("pipe.png", "is not a regular file"),)


@pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make links")
def test_links_lead_to_the_files(bank: Path, tmp_path: Path) -> None:
    search(bank, "--export", tmp_path / "out", "--as", "link")
    assert {os.readlink(tmp_path / "out" / name) for name in names(tmp_path / "out")} == {
        str(tmp_path / "p" / name) for name in ("a/red.png", "b/red.png", "a/blue.png")
    }


def test_a_csv_can_be_indexed_again(bank: Path, tmp_path: Path) -> None:
    place = tmp_path / "found.csv"
    search(bank, "--export", place, "-k", "2")
    rows = list(csv.DictReader(io.StringIO(place.read_text())))
    assert [row["rank"] for row in rows] == ["1", "2"]
    assert {row["id"] for row in rows} == {"a/red.png", "b/red.png"}
    assert "found-2.csv" in search(bank, "--export", place)
    again = Gallery.build(tmp_path / "g2", place, FakeEncoder())
    assert sorted(again.ids()) == ["a/red.png", "b/red.png"]


def test_a_zip_holds_the_files_and_their_list(bank: Path, tmp_path: Path) -> None:
    (tmp_path / "p" / "a" / "blue.png").unlink()
    said = search(bank, "--export", tmp_path / "found.zip")
    assert "wrote a ZIP of 2 pictures" in said
    assert "left out: a/blue.png: cannot be read" in said
    with zipfile.ZipFile(tmp_path / "found.zip") as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["01-red.png", "02-red.png", LIST]
        listed = {row["id"]: row["file"] for row in csv.DictReader(io.StringIO(archive.read(LIST).decode()))}
        assert archive.read(listed["b/red.png"]) == (tmp_path / "p" / "b" / "red.png").read_bytes()
        assert listed["a/blue.png"] == ""


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("../../etc/passwd", "passwd.png"),
        ("..", "picture.png"),
        ("C:\\x\\y.png", "y.png"),
        ("a\nb.PNG", "a_b.png"),
        ("7", "7.png"),
        ("日本語 🚲.png", "日本語 🚲.png"),
        ("x" * 300, "x" * 150 + ".png"),
        ("pictures.csv", "pictures.csv.png"),
        ("\ud800.png", "?.png"),
    ],
)
def test_ids_become_harmless_file_names(id_: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    path.write_bytes(png(flag("red")))
    with zipfile.ZipFile(
        io.BytesIO(b"".join(zip_of([Picture(id_.encode(errors="replace").decode(), str(path))])))
    ) as archive:
        assert archive.namelist() == [f"01-{name}".replace("?", "_"), LIST]


def test_files_that_are_no_longer_pictures_are_not_exported(bank: Path, tmp_path: Path) -> None:
    entry = Gallery.open(bank, encoder=FakeEncoder()).find("a/red.png")
    assert entry is not None
    Path(entry.path).write_bytes(b"a secret")
    assert export([Picture.of(entry)], tmp_path / "x.zip", "zip").count == 0
    assert b"a secret" not in (tmp_path / "x.zip").read_bytes()


def test_kinds_and_mistakes(bank: Path, tmp_path: Path) -> None:
    assert [kind_of(name) for name in ("x.CSV", "x.zip", "x", "x.d")] == ["csv", "zip", "copy", "copy"]
    assert "name a folder or a file with --export" in run("search", "-g", bank, "--text", "red", "--as", "csv").err
    (tmp_path / "file").write_text("")
    for place in ("file", "file/x", "file/x.csv", "x" * 300 + ".zip"):
        done = run("search", "-g", bank, "--text", "red", "--export", tmp_path / place)
        assert (done.code, done.err.count("\n"), done.out) == (2, 1, ""), place
        assert "cannot write" in done.err
        assert "; name a place that can be written to" in done.err


def test_a_full_disk_is_not_a_user_error(bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(place))

    monkeypatch.setattr(exporting, "_opened", full)
    done = run("search", "-g", bank, "--text", "red", "--export", tmp_path / "x.csv")
    assert done.code == 1
    assert "no space left on device; mend that, or name another place" in done.err


def test_show_prints_the_path_or_opens_the_folder(bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    answers = [False, True]

    def show(path: str) -> bool:
        opened.append(path)
        return answers.pop(0)

    monkeypatch.setattr("tapr.cli.show.show_in_folder", show)
    path = str(tmp_path / "p" / "a" / "red.png")
    done = run("show", "a/red.png", "-g", bank)
    assert (done.code, done.out.strip(), opened) == (0, path, [path])
    assert run("show", "a/red.png", "-g", bank).out == ""
    assert run("show", "a/red.png", "-g", bank, "--path").out.strip() == path
    assert run("show", "unknown", "-g", bank).code == 2
    Path(path).unlink()
    assert "is gone" in run("show", "a/red.png", "-g", bank).err
    assert len(opened) == 2


def test_show_without_a_gallery_takes_the_one_used_last(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cli.terminal.HOME", tmp_path / "home")
    none = run("show", "a/red.png", "--path")
    assert (none.code, "add -g FOLDER" in none.err) == (2, True)
    search(bank)
    done = run("show", "a/red.png", "--path")
    assert (done.code, done.out.strip()) == (0, str(tmp_path / "p" / "a" / "red.png"))
    assert f"gallery: {bank}, the one used last" in done.err
    bank.rename(tmp_path / "elsewhere")
    gone = run("show", "a/red.png", "--path")
    assert (gone.code, "is gone: add -g FOLDER" in gone.err) == (2, True)


def test_without_a_desktop_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not desktop.show_in_folder("/x/y.png")
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    command = desktop._command("/x/y z.png")
    assert command is not None
    assert command[-2:] == ["array:string:file:///x/y%20z.png", "string:"]


def test_links_that_cannot_be_made(bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    entry = Gallery.open(bank, encoder=FakeEncoder()).find("a/red.png")
    assert entry is not None
    with pytest.raises(BadInput, match="use --as copy"):
        export([Picture.of(entry)], tmp_path / "out", "link")
