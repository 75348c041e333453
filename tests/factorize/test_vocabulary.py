"""The vectors of the vocabulary: encoded by an index run and kept beside the gallery; no server waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from tapr.encoders.base import Encoder
from tapr.encoders.fake import FakeEncoder
from tapr.encoders.weights import HOME_VARIABLE
from tapr.explain.calibration import rivals_of_things
from tapr.factorize.tags import keep_vocabulary, use_vocabulary, vocabulary_vectors
from tapr.gallery import Gallery
from tapr.options import SearchOptions
from tapr.server.app import create_app
from tapr.server.settings import Settings
from tapr.types import Float32
from tapr.utils.progress import NoProgress
from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, write_flags


class Told:
    """Keeps what a run says it does."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def say(self, sentence: str) -> None: ...

    def start(self, total: int, what: str) -> None:
        self.started.append(what)

    def advance(self, done: int) -> None: ...


class Refusing(FakeEncoder):
    """Encodes nothing."""

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        raise AssertionError(f"{len(texts)} phrases were encoded again")


def leave_home(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Go to a machine that has encoded nothing yet."""
    monkeypatch.setenv(HOME_VARIABLE, str(folder))


@pytest.fixture
def gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gallery:
    leave_home(monkeypatch, tmp_path / "home")
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    keep_vocabulary(gallery.encoder, gallery.path, NoProgress())
    return gallery


def test_it_is_encoded_once_with_a_progress_line(gallery: Gallery, tmp_path: Path) -> None:
    (tmp_path / "home" / "tags").rename(tmp_path / "gone")
    told, again = Told(), Told()
    for folder, progress in (("one", told), ("two", again)):
        (tmp_path / folder).mkdir()
        keep_vocabulary(FakeEncoder(), tmp_path / folder, progress)
    assert (told.started, again.started) == (["encoding the vocabulary"], [])


def test_an_index_run_keeps_it_beside_the_gallery(gallery: Gallery, tmp_path: Path) -> None:
    assert run("index", tmp_path / "p", "-g", tmp_path / "new", "--encoder", "fake").code == 0
    assert list((tmp_path / "new").glob("vocabulary-*.cache"))


def test_a_gallery_on_another_machine_brings_it_along(
    gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, _ = vocabulary_vectors(FakeEncoder())
    leave_home(monkeypatch, tmp_path / "new")
    encoder = Refusing()
    assert use_vocabulary(encoder, gallery.path)
    assert np.array_equal(vocabulary_vectors(encoder)[0], vectors)


def save(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=True)


@pytest.mark.parametrize("damage", ["cut", "shape", "nan", "pickle"])
def test_a_damaged_file_is_made_again(
    gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    vectors, _ = vocabulary_vectors(FakeEncoder())
    (file,) = gallery.path.glob("vocabulary-*.cache")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-5])
    elif damage == "shape":
        save(file, vectors[1:])
    elif damage == "nan":
        save(file, vectors * np.float32("nan"))
    else:
        save(file, np.array([{}], object))
    leave_home(monkeypatch, tmp_path / "new")
    encoder = FakeEncoder()
    assert not use_vocabulary(encoder, gallery.path)
    assert np.allclose(vocabulary_vectors(encoder)[0], vectors)


def test_a_server_answers_while_the_vocabulary_is_still_being_encoded(
    gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_home(monkeypatch, tmp_path / "new")
    for file in gallery.path.glob("vocabulary-*.cache"):
        file.unlink()
    has_begun, may_go_on, has_ended = Event(), Event(), Event()

    def slowly(encoder: Encoder) -> tuple[Float32, Float32]:
        """Take as long as the test wants, between two phrases: others can use the encoder then."""
        has_begun.set()
        assert may_go_on.wait(60)
        vectors = rivals_of_things(encoder)
        has_ended.set()
        return vectors

    monkeypatch.setattr("tapr.server.engine.rivals_of_things", slowly)
    app = create_app(Gallery.open(gallery.path, encoder=FakeEncoder()), Settings(names=("testserver",)), "target-only")
    engine = app.state.engine
    assert has_begun.wait(60)
    question = {"spec": {"target": "a red picture", "add": ["red"]}, "k": 10}
    with TestClient(app) as client:
        hits = client.post("/api/search", json=question).json()["hits"]
        assert len(hits) == 10
        assert not any(part["found"] for hit in hits for part in hit["contributions"])
        may_go_on.set()
        assert has_ended.wait(60)
        ranking = engine.snapshot().search(SearchOptions.of(**question))
        while engine.marked(ranking) is ranking:  # the thread is about to say so
            pass
        assert client.post("/api/search", json=question).status_code == 200
