"""Files that cannot be used: listed, never the end of a run, and tried again."""

import os
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.images.decode import decode_views
from tapr.images.photo_facts import read_facts
from tests.pictures import flag, png, write_flags
from tests.test_gallery import report_of


def test_bad_files_are_listed_and_never_stop_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    good = write_flags(folder, [("red",), ("blue",)])
    whole = good[0].read_bytes()
    bad = {
        "empty.png": b"",
        "text.jpg": b"just words",
        "cut.png": whole[:50],
        "cut later.png": whole[:-30],
        "svg.png": b"<svg xmlns='http://www.w3.org/2000/svg'></svg>",
        "page.jpg": b"<html>",
        "pdf.png": b"%PDF-1.4",
        "zeros.bmp": bytes(500),
        "head.gif": b"GIF89a",
        "head.jpg": b"\xff\xd8\xff\xe0",
        "riff.webp": b"RIFF\0\0\0\0WEBP",
        "head.tiff": b"II*\0",
        "noise.png": bytes(range(256)),
        "zip.png": b"PK\3\4" + bytes(40),
        "magic.ico": b"\0\0\1\0",
        "head.ppm": b"P6\n10 10\n255\n",
        "tga.tga": bytes(5),
        "jp2.jp2": b"\0\0\0\x0cjP  \r\n\x87\n",
        "avif.avif": b"\0\0\0\x18ftypavif",
        "phone.heic": b"\0\0\0\x18ftypheic" + bytes(20),
    }
    for name, data in bad.items():
        (folder / name).write_bytes(data)
    (folder / "gone.png").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.png")
    gallery = Gallery.build(tmp_path / "g", folder, FakeEncoder())
    assert gallery.ids() == ["blue.png", "red.png"]
    reasons = {Path(path).name: reason for path, reason in report_of(gallery).failures}
    assert set(reasons) == {*bad, "gone.png", "pipe.png"}
    assert len(bad) >= 20
    assert reasons["empty.png"] == "is empty"
    assert "\n" not in "".join(reasons.values())
    again = gallery.sync()
    assert again.encoded == 0
    assert len(again.failures) == 22


def test_a_failed_file_that_is_mended_comes_in(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.png").write_bytes(b"broken")
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    assert len(gallery) == 0
    (tmp_path / "p" / "a.png").write_bytes(png(flag("red")))
    assert gallery.sync().failures == []
    assert gallery.ids() == ["a.png"]


def test_failed_files_are_tried_again_when_other_readers_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra 'heic' is not installed")
    (tmp_path / "p").mkdir()
    pillow_heif.from_pillow(flag("red")).save(tmp_path / "p" / "phone.heic")
    (tmp_path / "p" / "broken.png").write_bytes(b"broken")

    def not_there(name: str) -> str:
        raise PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pillow_heif", None)
        patch.setattr("tapr.images.decode.version", not_there)
        patch.setattr("tapr.images.workers.shared", lambda: SimpleNamespace(decode=decode_views, facts=read_facts))
        gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
        assert len(gallery) == 0
        assert any("heic" in reason.lower() for _, reason in report_of(gallery).failures)
        assert gallery.sync().unchanged == 2
    report = gallery.sync()
    assert report.encoded == 1
    assert [Path(path).name for path, _ in report.failures] == ["broken.png"]
    assert gallery.ids() == ["phone.heic"]
    assert gallery.sync().unchanged == 2  # what still fails is not tried for ever
