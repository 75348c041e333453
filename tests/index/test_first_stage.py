"""Summaries are part of a gallery: written with its rows, checked, repaired, compacted, backed up, and always true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapr
from tapr import BadInput, EditSpec, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.errors import TaprError
from tapr.index.encode import encode_all
from tapr.store import layout, shards
from tapr.store.backup import copy_gallery
from tapr.store.block import PRECISIONS, Precision
from tapr.store.layout import Manifest
from tapr.store.shards import summariser_in, summary_parts
from tapr.store.verify import verify
from tests.cli.terminal import run
from tests.damaged import PAIRS, Counting, files, flip
from tests.pictures import SOME_FLAGS, flag, png, write_flags
from tests.refusals import refused

SPEC = EditSpec("a red white and green flag", ["green"], ["red"], ["blue"])


def searched_alike(gallery: Gallery, **options: Any) -> None:
    """By stages and in full: the same hits and scores."""
    for spec in (SPEC, EditSpec("a flag", [], [], ["red"])):
        full, staged = (
            tapr.search(gallery, spec=spec, k=6, prefilter=stage, explain=False, **options) for stage in (None, "exact")
        )
        assert [(hit.id, hit.score) for hit in staged.hits] == [(hit.id, hit.score) for hit in full.hits]
        assert staged.prefilter is None or staged.prefilter.proven


def is_true(path: Path) -> Gallery:
    """Every row's summary is the one of its vectors; nothing is damaged; searches agree."""
    gallery = Gallery.open(path, encoder=FakeEncoder())
    assert verify(path).is_whole
    assert Manifest.read(path).first_stage
    summariser = summariser_in(gallery._catalog)
    for start, stop in gallery._shards.spans():
        parts = gallery._shards.parts(start, stop)
        made = summary_parts({kind: parts[kind] for kind in gallery.manifest.vector_kinds()}, summariser)
        for row in range(stop - start):  # as they were written, row by row or together: but for the last bits
            outline, again = parts[layout.OUTLINE][row], made[layout.OUTLINE][row]
            np.testing.assert_allclose(outline["scales"], again["scales"], rtol=1e-3, atol=1e-6)
            np.testing.assert_array_equal(parts[layout.POOLED][row], made[layout.POOLED][row])
    searched_alike(gallery)
    return gallery


@pytest.mark.parametrize("precision", PRECISIONS)
def test_from_then_on_index_runs_writes_and_deletes_keep_it_true(
    tmp_path: Path, small_shards: None, precision: Precision
) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), precision)
    before = files(gallery.path)
    with refused("no_prefilter", "tapr first-stage"):
        tapr.search(gallery, spec=SPEC, prefilter=5)
    assert Gallery.add_first_stage(gallery.path)
    assert not Gallery.add_first_stage(gallery.path)  # it has one
    after = files(gallery.path)
    assert {name for name in before if before[name] != after.get(name)} == {"manifest.json", "catalog-1.sqlite"}
    gallery = is_true(gallery.path)
    write_flags(tmp_path / "p", PAIRS)  # more shards
    gallery.sync()
    gallery = is_true(gallery.path)
    gallery.put("put", png(flag("green", "green", "red")), {"price": 4})
    searched_alike(gallery)  # the same object, which shows the new snapshot now
    gallery.delete("red.png")
    searched_alike(gallery)
    gallery = is_true(gallery.path)
    assert "put" in gallery.ids()
    searched_alike(gallery, where="id like 'red%'")
    searched_alike(gallery, where="price = 4")
    for path in (tmp_path / "p").glob("*.png"):
        if "orange" not in path.name:
            path.unlink()
    gallery.sync()
    assert gallery.manifest.counts["rows"] < 30  # compacted: under new names
    is_true(gallery.path)
    copy_gallery(gallery.path, tmp_path / "backup")
    assert Gallery.open(tmp_path / "backup").subspaces is not None
    is_true(tmp_path / "backup")


def test_a_search_says_what_is_proven(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    Gallery.add_first_stage(tmp_path / "g")
    gallery = Gallery.open(tmp_path / "g", encoder=FakeEncoder())
    told = tapr.search(gallery, "red-white-blue.png", spec=SPEC, k=3, prefilter=2)
    assert told.prefilter is not None
    assert told.to_dict()["prefilter"]["read"] == told.prefilter.read == 2
    assert not told.prefilter.proven
    assert "exact: not proven; 2 of 10 pictures read in full" in told.notes[0]
    assert tapr.search(gallery, "red-white-blue.png", spec=SPEC, budget_ms=60_000).prefilter is not None
    with refused("conflicting_options", option="prefilter"):
        tapr.search(gallery, "red-white-blue.png", "blue", method="image", prefilter=5)
    with refused("conflicting_options", option="budget_ms"):
        tapr.search(gallery, "red-white-blue.png", "blue", method="image", budget_ms=5)
    for odd in (0, -5, float("nan"), 1e12):
        with pytest.raises(tapr.BadInput, match="budget_ms must be a number above 0 and up to 3,600,000, not "):
            tapr.search(gallery, "red-white-blue.png", spec=SPEC, budget_ms=odd)


@pytest.fixture
def summarised(built: Path) -> Path:
    Gallery.add_first_stage(built)
    shutil.copytree(built, built.parent / "summarised")
    return built


@pytest.mark.parametrize("kind", layout.SUMMARY_KINDS)
def test_damage_is_found_and_mended_from_what_is_stored(summarised: Path, kind: str) -> None:
    hurt = summarised / f"{kind}-0-00001.npy"
    flip(hurt, -3)
    (damage,) = verify(summarised).damage
    assert (damage.file, damage.kind) == (hurt.name, kind)
    encoder = Counting()
    _, repair = Gallery.repair(summarised, encoder=encoder)
    assert (repair.files, encoder.encoded) == ([hurt.name], 0)
    assert repair.derived
    is_true(summarised)
    hurt.unlink()
    with pytest.raises(TaprError, match="tapr repair"):
        Gallery.open(summarised)
    Gallery.repair(summarised, encoder=encoder)
    is_true(summarised)


def test_vectors_that_are_encoded_anew_get_new_codes_and_summaries(summarised: Path) -> None:
    """Another processor gives other bits: what was derived from the old ones would bound scores that are no more."""

    class Other(FakeEncoder):
        def encode_images(self, prepared: Any) -> Any:
            found = super().encode_images(prepared)
            moved = np.roll(found.local_vectors, 1, axis=-1)
            return type(found)(found.global_vectors, moved)

    flip(summarised / "local-0-00000.npy", -3)
    _, repair = Gallery.repair(summarised, encoder=Other())
    assert repair.encoded == 4  # the rows of one checksum
    gallery = is_true(summarised)
    block = gallery.gather(np.arange(16))
    fresh = summary_parts(
        {layout.GLOBAL: block.global_vectors, layout.LOCAL: block.decoded()}, summariser_in(gallery._catalog)
    )
    assert block.outlines is not None
    np.testing.assert_allclose(block.outlines["scales"], fresh[layout.OUTLINE]["scales"], rtol=1e-3, atol=1e-6)
    from tapr.store.codec import decode

    assert block.local_codes is not None
    assert block.local_scales is not None
    np.testing.assert_allclose(decode(block.local_codes, block.local_scales), block.decoded(), atol=0.05)


def test_a_run_that_is_stopped_leaves_the_gallery_as_it_was(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    calls = iter(range(2))

    def until_killed(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise Killed
        return summary_parts(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("tapr.index.first_stage.summary_parts", until_killed)
        with pytest.raises(Killed):
            Gallery.add_first_stage(built)
    assert Gallery.open(built).subspaces is None
    assert verify(built).is_whole
    gallery = Gallery.open(built, encoder=FakeEncoder())
    gallery.put("new", png(flag("red", "red", "green")))  # a write in between, and then again
    assert not list(built.glob("outline-*"))  # nothing is left behind
    assert Gallery.add_first_stage(built)
    is_true(built)


def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "broken.png").write_bytes(b"x")
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    with pytest.raises(BadInput, match="has no pictures yet"):
        Gallery.add_first_stage(tmp_path / "g")
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())

    def stopped(*arguments: Any) -> None:
        encode_all(*arguments)
        raise KeyboardInterrupt

    write_flags(tmp_path / "p", PAIRS)
    monkeypatch.setattr("tapr.index.run.encode_all", stopped)
    with pytest.raises(KeyboardInterrupt):
        gallery.sync()
    with pytest.raises(TaprError, match="run tapr index again"):
        Gallery.add_first_stage(tmp_path / "g")
    monkeypatch.undo()
    gallery.sync()
    flip(tmp_path / "g" / "local-0-00000.npy", -2000)
    with pytest.raises(TaprError, match="tapr repair"):
        Gallery.add_first_stage(tmp_path / "g")


class Said:
    """A progress that keeps what was said and done."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.begun: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def start(self, total: int, what: str) -> None:
        self.begun.append(what)

    def advance(self, done: int) -> None: ...


def build(folder: Path, first_stage: bool | None = None, progress: Said | None = None) -> tuple[int, bool]:
    """-> how many pictures the run summarised; whether the gallery has a first stage now"""
    gallery = Gallery.build(folder / "g", folder / "p", FakeEncoder(), first_stage=first_stage, progress=progress)
    assert gallery.report is not None
    return gallery.report.summarised, gallery.subspaces is not None


@pytest.fixture
def large_from_eleven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "WORTH", 11)
    monkeypatch.setattr(shards, "LONGEST", 1)  # the fake encoder has few and short vectors


def test_a_gallery_that_becomes_large_gets_one_by_itself(tmp_path: Path, large_from_eleven: None) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)  # 10
    assert build(tmp_path) == (0, False)
    assert not Gallery.open(tmp_path / "g").lacks_first_stage()
    write_flags(tmp_path / "p", PAIRS)
    said = Said()
    assert build(tmp_path, progress=said) == (Gallery.open(tmp_path / "g").row_count, True)
    assert said.begun == ["reading metadata", "encoding", "summarising"]
    is_true(tmp_path / "g")
    assert build(tmp_path) == (0, True)


def test_what_was_said_of_it_counts_for_later_runs_too(tmp_path: Path, large_from_eleven: None) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    assert build(tmp_path, False) == (0, False)
    write_flags(tmp_path / "p", PAIRS)
    assert build(tmp_path) == (0, False)
    assert not Gallery.open(tmp_path / "g").lacks_first_stage()
    assert build(tmp_path, True)[1]  # nothing else is to be done
    is_true(tmp_path / "g")
    said = Said()
    assert build(tmp_path, False, said) == (0, True)
    assert said.sentences == ["the gallery has a first stage already, and keeps it"]


def test_a_small_gallery_gets_one_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "broken.png").write_bytes(b"x")
    assert build(tmp_path, True) == (0, False)  # of no pictures
    write_flags(tmp_path / "p", SOME_FLAGS)
    assert build(tmp_path) == (10, True)


def test_short_vectors_are_not_summarised_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "WORTH", 5)
    write_flags(tmp_path / "p", SOME_FLAGS)
    assert build(tmp_path) == (0, False)


def test_what_keeps_an_index_run_from_adding_one_is_told(built: Path, large_from_eleven: None) -> None:
    flip(built / "local-0-00000.npy", -9000)  # not in the part that is read when it is opened
    write_flags(built.parent / "p", SOME_FLAGS)
    said, gallery = Said(), Gallery.open(built, encoder=FakeEncoder())
    report = gallery.sync(progress=said)
    assert (report.encoded > 0, report.summarised, gallery.subspaces) == (True, 0, None)
    assert "no first stage was added: " in said.sentences[-1]
    assert "tapr repair" in said.sentences[-1]
    assert gallery.lacks_first_stage()


def test_who_does_not_index_is_told_to_add_one(tmp_path: Path, large_from_eleven: None) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    build(tmp_path)
    gallery = Gallery.open(tmp_path / "g", encoder=FakeEncoder())
    assert "first-stage" not in run("doctor", "-g", gallery.path).out
    gallery.put("new", png(flag("red", "red", "green")))
    assert f"tapr first-stage -g {gallery.path}" in run("doctor", "-g", gallery.path).out


def test_the_commands(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    done = run("first-stage", "-g", gallery.path, "--json")
    assert (done.code, json.loads(done.out)["pictures"], json.loads(done.out)["added"]) == (0, 10, True)
    assert "has a first stage" in run("first-stage", "-g", gallery.path).out
    indexed = run("index", tmp_path / "p", "-g", tmp_path / "h", "--encoder", "fake", "--first-stage")
    assert "first stage: 10 pictures summarised" in indexed.out
    search = ("search", "-g", gallery.path, "red-white-blue.png", "--spec", tmp_path / "spec.json")
    told = json.loads(run(*search, "--prefilter", "exact", "--json").out)
    assert told["prefilter"]["proven"] is True
    assert told["hits"][0]["id"] == "red-white-green.png"
    assert json.loads(run(*search, "--budget-ms", "60000", "--json").out)["prefilter"]["pictures"] == 10
    assert "exact: not proven" in run(*search, "--prefilter", "2", "-k", "3").err
    for wrong in (("--prefilter", "0"), ("--prefilter", "many"), ("--budget-ms", "0")):
        refusal = run(*search, *wrong)
        assert (refusal.code, refusal.err.count("\n")) == (2, 1)
