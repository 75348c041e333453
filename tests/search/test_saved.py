"""Saved searches: what fits, what is new, and that the file survives."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tapr
from tapr import EditSpec, Gallery, SavedSearches
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.store.backup import copy_gallery
from tapr.store.saved_searches import FILE, SavedSearchFile
from tapr.store.verify import verify
from tests.pictures import flag, write_flags

ENCODER = FakeEncoder()
FIRST = [("red", "blue"), ("red", "green"), ("blue", "green"), ("green",), ("blue",), ("white",)]
SPEC = EditSpec("a red flag", ["red"], ["blue"], ["white"])
QUESTIONS: list[dict[str, Any]] = [
    {"text": "red"},
    {"text": "red", "not_like": ["green.png"], "more_like": [flag("yellow", "red")]},
    {"like": "red-blue.png", "near_duplicates": 0.99},
    {"reference": "red-blue.png", "spec": SPEC, "weights": {"remove": 1.0}, "tau": 0.1},
    {"reference": "red-blue.png", "spec": SPEC, "score": "paper"},
    {"reference": "red-blue.png", "spec": SPEC, "score": "adaptive", "crop": [0, 0, 0.5, 1], "where": "id != 'x'"},
    {"reference": "red-blue.png", "edit": "in green", "factorizer": "target-only", "more_references": ["blue.png"]},
]


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", FIRST)
    return Gallery.build(tmp_path / "g", tmp_path / "p", ENCODER)


@pytest.mark.parametrize("asked", QUESTIONS, ids=" ".join)
def test_a_saved_search_gives_the_answer_that_was_saved(gallery: Gallery, asked: dict[str, Any]) -> None:
    searches = SavedSearches(gallery)
    plain = tapr.search(gallery, **asked, k=3)
    saved = searches.save("flags", **asked, k=3)
    assert saved.threshold == plain.hits[-1].score
    again = SavedSearches(Gallery.open(gallery.path)).run("flags")
    assert [(hit.id, hit.score, hit.near_duplicate_of) for hit in again.hits] == [
        (hit.id, hit.score, hit.near_duplicate_of) for hit in plain.hits
    ]
    assert again.reference_weight == plain.reference_weight


def test_a_picture_fits_from_the_threshold_on_and_is_told_once(gallery: Gallery, tmp_path: Path) -> None:
    searches = SavedSearches(gallery)
    saved = searches.save("reds", text="red", k=2)
    assert searches.check() == [], "nothing has changed"
    write_flags(tmp_path / "p", [("red", "red"), ("red", "yellow"), ("black",)])
    gallery.sync()
    new = searches.check()
    scores = {hit.id: hit.score for hit in tapr.search(gallery, text="red", k=100).hits}
    before = {"-".join(colours) + ".png" for colours in FIRST}
    assert {match.id for match in new} == {id_ for id_, score in scores.items() if score >= saved.threshold} - before
    assert "red-red.png" in {match.id for match in new}
    assert "black.png" not in {match.id for match in new}
    assert all(match.score == scores[match.id] for match in new)
    assert searches.check() == []
    (tmp_path / "p" / "red-red.png").rename(tmp_path / "p" / "other name.png")
    shutil.copy(tmp_path / "p" / "red-yellow.png", tmp_path / "p" / "a copy.png")
    gallery.sync()
    assert searches.check() == [], "the content is known"
    assert searches.matches("reds") == SavedSearches(gallery.path).matches("reds") == new
    searches.delete("reds")
    assert (searches.all(), searches.matches()) == ([], [])


def test_two_who_look_at_the_same_time_find_a_match_once(gallery: Gallery, tmp_path: Path) -> None:
    first = SavedSearches(gallery)
    saved = first.save("reds", text="red", k=1, threshold=0.01)
    write_flags(tmp_path / "p", [("red", "red")])
    gallery.sync()
    second = SavedSearches(gallery.path)
    fits = second._fits(second._question(saved), saved.threshold)
    snapshot = gallery.manifest.snapshot or 0
    assert [match.id for match in first.check()] == ["red-red.png"]
    second.file.record(saved, fits, snapshot)
    assert len(first.matches()) == 1


def test_the_reference_may_leave_the_gallery_and_a_filter_may_come_true(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", FIRST)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", ENCODER)
    searches = SavedSearches(gallery)
    scores = {hit.id: hit.score for hit in tapr.search(gallery, like="red-blue.png", where="id != 'green.png'").hits}
    searches.save("like it", like="red-blue.png", where="id != 'green.png'", threshold=-1)
    (tmp_path / "p" / "red-blue.png").unlink()
    (tmp_path / "p" / "green.png").rename(tmp_path / "p" / "leaf.png")
    gallery.sync()
    assert {hit.id: hit.score for hit in searches.run("like it").hits if hit.id in scores} == scores
    assert [match.id for match in searches.check()] == ["leaf.png"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"text": "red", "method": "image", "reference": "blue.png"}, "conflicting_options"),
        ({"text": "red", "offset": 2}, "conflicting_options"),
        ({"text": "red", "prefilter": "exact"}, "conflicting_options"),
        ({"text": "red", "budget_ms": 50.0}, "conflicting_options"),
        ({"text": "red", "where": "id = 'nothing'"}, "missing_option"),
        ({"text": "red", "webhook": "file:///etc/passwd"}, "bad_option"),
        ({"text": "red", "name": "../x"}, "bad_input"),
        ({"like": "nowhere.png"}, "unknown_picture"),
    ],
    ids=str,
)
def test_what_cannot_be_saved_is_refused(gallery: Gallery, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(BadInput) as caught:
        SavedSearches(gallery).save(**{"name": "x", **asked})
    assert caught.value.code == code
    assert not (gallery.path / FILE).exists()


def test_unknown_names_and_another_encoder(gallery: Gallery, tmp_path: Path) -> None:
    searches = SavedSearches(gallery)
    for call in (searches.run, searches.delete, searches.matches):
        with pytest.raises(BadInput) as caught:
            call("nothing")
        assert caught.value.code == "unknown_search"
    searches.save("Größe 38", text="red", k=1)
    other = Gallery.build(tmp_path / "other", tmp_path / "p", FakeEncoder((2, 2)))
    shutil.copy(gallery.path / FILE, other.path / FILE)
    said: list[str] = []
    with pytest.raises(BadInput):
        SavedSearches(other).run("Größe 38")
    with sqlite3.connect(other.path / FILE) as db:
        db.execute("UPDATE searches SET checked = -1")
    assert SavedSearches(other).check(said.append) == []
    assert len(said) == 1, "said, and the others go on"


def test_copies_and_damage(gallery: Gallery, tmp_path: Path) -> None:
    SavedSearches(gallery).save("reds", text="red", k=2, more_like=["green.png"])
    before = verify(gallery.path)
    assert before.is_whole
    copied = copy_gallery(gallery.path, tmp_path / "copy")
    assert copied.files == before.files + 1, "and the manifest"
    assert SavedSearches(tmp_path / "copy").all() == SavedSearches(gallery).all()
    for statement in ("UPDATE pictures SET data = zeroblob(9)", "UPDATE searches SET threshold = 0"):
        with sqlite3.connect(tmp_path / "copy" / FILE) as db:
            db.execute(statement)
        assert [one.file for one in verify(tmp_path / "copy").damage] == [FILE]
    (tmp_path / "copy" / FILE).write_bytes(b"no database, but long enough to look like a file" * 100)
    assert not verify(tmp_path / "copy").is_whole
    with pytest.raises(tapr.TaprError):
        SavedSearches(tmp_path / "copy").all()
    (tmp_path / "copy" / FILE).unlink()
    assert verify(tmp_path / "copy").is_whole


KILLED = """
import os, sys
from pathlib import Path
from tapr.store import saved_searches
file = saved_searches.SavedSearchFile(Path(sys.argv[1]))
with file._writing() as db:
    db.execute("PRAGMA cache_size = 1")  # pages are written before the end of the transaction
    for i in range(2000):
        db.execute("INSERT INTO searches VALUES (?, '{}', 0, 0, NULL, 0, ?)", (f"half {i}", "x" * 500))
    os._exit(9)
"""


@pytest.mark.parametrize("first", [True, False], ids=["the first search", "a later one"])
def test_a_kill_undoes_what_was_not_finished(gallery: Gallery, first: bool) -> None:
    searches = SavedSearches(gallery)
    if not first:
        searches.save("reds", text="red", k=2)
    subprocess.run([sys.executable, "-c", KILLED, str(gallery.path)], check=False)
    assert (gallery.path / f"{FILE}-journal").exists(), "the kill came in the middle"
    assert [one.name for one in SavedSearchFile(gallery.path).all()] == ([] if first else ["reds"])
    assert verify(gallery.path).is_whole
    searches.save("blues", text="blue", k=2)
    assert "blues" in [one.name for one in searches.all()]
