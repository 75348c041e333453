"""Backups and restores that are killed, or that run into a full or failing disk, and are run again."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.faults import KINDS, Disturbed, build_layer, check_end

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.store.saved_searches import Fit, SavedSearch, SavedSearchFile
from tapr.store.verify import verify
from tests.pictures import flag, png, write_flags

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="the layer of faults needs Linux and a C compiler"
    ),
]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Path(os.path.realpath(tmp_path_factory.mktemp("copies")))
    write_flags(place / "p", [("red",), ("blue",), ("green", "white")])
    gallery = Gallery.build(place / "g", place / "p", FakeEncoder(), "both")
    for colour in ("black", "white"):
        gallery.put(colour, png(flag(colour, size=(40, 30))))
    search = SavedSearch("reds", {"text": "red"}, 0.5, 1)
    SavedSearchFile(gallery.path).save(search, [("reference", b"picture")], [Fit("red.png", "0", 0.9)])
    return gallery.path


@pytest.fixture(scope="module")
def disturbed(gallery: Path) -> Iterator[Disturbed]:
    runs = Disturbed(build_layer(gallery.parent))
    yield runs
    runs.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["backup", "restore"])
def test_a_copy_that_was_stopped_is_run_again(disturbed: Disturbed, gallery: Path, verb: str, kind: str) -> None:
    target = gallery.parent / f"{verb}-{kind}"
    command = (verb, str(target), "-g", str(gallery)) if verb == "backup" else (verb, str(gallery), "-g", str(target))
    operations = disturbed.run(command, target, at=0).operations
    assert operations > 50
    dice = random.Random(f"{verb} {kind}")
    for at in (1, 2, 3, *dice.sample(range(4, operations), 12), operations):
        shutil.rmtree(target)
        end = disturbed.run(command, target, at, kind)
        check_end(kind, end)
        if end.code == 1:
            assert str(target) in end.said, "the disk of the target is the one to look at"
            assert str(gallery) not in end.said.replace(str(target), "")
            assert "delete" not in end.said
        if end.code:
            assert not (target / "manifest.json").exists() or verify(target).is_whole
        if not (target / "manifest.json").exists():
            again = disturbed.run(command)
            assert again.code == 0, f"at {at}: {again.said}"
        assert verify(target).is_whole
        assert len(Gallery.open(target, encoder=FakeEncoder())) == 5
        left = {path.name for path in target.iterdir() if not path.name.startswith(".lock")}
        assert left == {path.name for path in gallery.iterdir() if not path.name.startswith(".lock")}
    assert verify(gallery).is_whole
