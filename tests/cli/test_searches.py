"""Saved searches and the collage on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tapr.cli.watch import tell_matches
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tests.cli.terminal import run
from tests.pictures import write_flags


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", [("red", "blue"), ("red", "green"), ("blue",), ("green",)])
    return Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())


def test_save_list_run_watch_delete(gallery: Gallery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("search", "-g", gallery.path, "--text", "red", "-k", "2", "--not-like", "green.png")
    saved = run(*asked, "--save", "my reds", "--json")
    assert (saved.code, "my reds" in saved.err) == (0, True)
    (listed,) = json.loads(run("searches", "list", "-g", gallery.path, "--json").out)["searches"]
    hits = json.loads(saved.out)["hits"]
    assert (listed["name"], listed["threshold"], listed["matches"]) == ("my reds", hits[-1]["score"], 0)
    assert "my reds" in run("searches", "list", "-g", gallery.path).out
    again = json.loads(run("searches", "run", "my reds", "-g", gallery.path, "--json").out)
    assert [hit["score"] for hit in again["hits"]] == [hit["score"] for hit in hits]
    last = tell_matches(gallery, None, as_json=True)
    write_flags(tmp_path / "p", [("red", "red"), ("yellow",)])
    gallery.sync()
    found = json.loads(run("searches", "matches", "-g", gallery.path, "--json").out)["matches"]
    assert [match["id"] for match in found] == ["red-red.png"]
    capsys.readouterr()
    assert tell_matches(gallery, last, as_json=True) == found[0]["number"]
    assert json.loads(capsys.readouterr().out) == {"event": "match", **found[0]}, "though another process found it"
    assert tell_matches(gallery, found[0]["number"], as_json=False) == found[0]["number"]
    assert capsys.readouterr().out == ""
    assert "red-red.png" in run("searches", "matches", "my reds", "-g", gallery.path).out
    assert run("searches", "delete", "my reds", "-g", gallery.path).code == 0
    gone = run("searches", "run", "my reds", "-g", gallery.path)
    assert (gone.code, gone.err.count("\n")) == (2, 1)
    assert run(*asked, "--webhook", "https://hooks.example/").code == 2
    (gallery.path / "searches.sqlite").write_bytes(b"no database" * 500)
    assert tell_matches(gallery, 7, as_json=False) == 7, "said, and the gallery is kept fresh all the same"


@pytest.mark.parametrize(("name", "kind"), [("c.png", "PNG"), ("c.JPG", "JPEG")])
@pytest.mark.parametrize("k", [1, 4])
def test_a_collage(gallery: Gallery, tmp_path: Path, name: str, kind: str, k: int) -> None:
    (tmp_path / "p" / "green.png").unlink()  # a picture that is gone is an empty tile
    asked: list[str | Path] = ["search", "-g", gallery.path, "--like", "red-blue.png", "-k", str(k)]
    assert run(*asked, "--collage", tmp_path / name).code == 0
    with Image.open(tmp_path / name) as image:
        assert (image.format, image.width) == (kind, 1600)
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 50
    for place in (tmp_path / "c.webp", tmp_path / "nowhere" / name):
        done = run(*asked, "--collage", place)
        assert (done.code, done.err.count("\n")) == (2, 1)
