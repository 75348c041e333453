"""A gallery's first stage on disk, and the searches and commands that use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tapr
from tapr import BadInput, EditSpec, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.errors import TaprError
from tapr.search.prefilter.store import FOLDER, build, open_prefilter
from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.refusals import refused

pytest.importorskip("faiss", reason="the extra first-stage is not installed")

SPEC = EditSpec("a red white and green flag", ["green"], ["red"], ["blue"])


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", SOME_FLAGS)
    return Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())


def test_a_search_by_stages_is_the_full_search(gallery: Gallery) -> None:
    build(gallery)
    for where in (None, "id like 'red%'", "id = 'nothing'"):
        full, staged = (
            tapr.search(gallery, "red-white-blue.png", spec=SPEC, k=5, where=where, prefilter=stage)
            for stage in (None, "exact")
        )
        assert [hit.id for hit in staged.hits] == [hit.id for hit in full.hits]
        assert staged.prefilter is None or staged.prefilter.proven
    assert full.to_dict()["prefilter"] is None
    told = tapr.search(gallery, "red-white-blue.png", spec=SPEC, k=3, prefilter=2)
    assert told.prefilter is not None
    assert told.to_dict()["prefilter"]["read"] == told.prefilter.read == 2
    assert not told.prefilter.proven
    assert "exact: not proven; 2 of 10 pictures read exactly" in told.notes[0]


def test_a_changed_gallery_wants_a_new_first_stage(gallery: Gallery, tmp_path: Path) -> None:
    with refused("no_prefilter", "tapr first-stage"):
        tapr.search(gallery, "red-white-blue.png", spec=SPEC, prefilter=5)
    build(gallery)
    flag("green", "green", "blue").save(tmp_path / "p" / "new.png")
    gallery.sync()
    with refused("no_prefilter", "tapr first-stage"):
        tapr.search(gallery, "red-white-blue.png", spec=SPEC, prefilter=5)
    (gallery.path / f".{FOLDER}.left").mkdir()  # by a run that was killed
    build(gallery, directions=2)
    assert tapr.search(gallery, "red-white-blue.png", spec=SPEC, prefilter="exact").prefilter is not None
    assert sorted(path.name for path in gallery.path.iterdir() if "first-stage" in path.name) == [FOLDER]


def test_damage_and_mistakes_are_one_sentence(gallery: Gallery) -> None:
    with pytest.raises(BadInput, match="without a filter"):
        build(gallery.select("id like 'red%'"))
    with pytest.raises(BadInput, match="1 or more directions"):
        build(gallery, directions=0)
    build(gallery)
    with refused("conflicting_options", option="prefilter"):
        tapr.search(gallery, "red-white-blue.png", "blue", method="image", prefilter=5)
    folder = gallery.path / FOLDER
    data = bytearray((folder / "codes.npy").read_bytes())
    data[-3] ^= 1  # a proof would rest on it
    (folder / "codes.npy").write_bytes(data)
    with pytest.raises(TaprError, match=r"codes.npy is not what was written.*run tapr first-stage"):
        open_prefilter(gallery.reopen())
    data[-3] ^= 1
    (folder / "codes.npy").write_bytes(data)
    open_prefilter(gallery.reopen())
    (folder / "engine.faiss").write_bytes(b"x")
    with pytest.raises(TaprError, match="run tapr first-stage"):
        open_prefilter(gallery.reopen())
    (folder / "codes.npy").unlink()
    with pytest.raises(TaprError, match="cannot use the first stage"):
        open_prefilter(gallery.reopen())
    (folder / "about.json").write_text("{")
    with pytest.raises(BadInput, match="cannot read the first stage"):
        open_prefilter(gallery.reopen())


def test_the_commands(gallery: Gallery, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    done = run("first-stage", "-g", gallery.path, "--json")
    assert (done.code, json.loads(done.out)["pictures"]) == (0, 10)
    assert "first stage of 10 pictures" in run("first-stage", "-g", gallery.path, "--directions", "2").out
    search = ("search", "-g", gallery.path, "red-white-blue.png", "--spec", tmp_path / "spec.json", "--prefilter")
    told = json.loads(run(*search, "exact", "--json").out)
    assert told["prefilter"]["proven"] is True
    assert told["hits"][0]["id"] == "red-white-green.png"
    assert "exact: not proven" in run(*search, "2", "-k", "3").err
    for wrong in ("0", "many", "-3"):
        refused = run(*search, wrong)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "or 'exact'" in refused.err
