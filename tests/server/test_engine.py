"""The engine: what is kept, what is shared, what is encoded only once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Evidence
from tapr.encoders.caching import CachingEncoder
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.images.decode import Limits
from tapr.options import SearchOptions
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tapr.server.engine import Engine
from tapr.server.pictures import Picture
from tapr.server.references import References, UnknownReference
from tapr.server.settings import Settings
from tapr.server.thumbnails import Thumbnails
from tapr.types import Float32
from tests.pictures import flag, png
from tests.server.conftest import ColourFactorizer

LIMITS = Limits()


def opened(engine: Engine, picture: Image.Image) -> Reference:
    return engine.snapshot().pictures.open_bytes(png(picture), LIMITS)


class CountingEncoder(FakeEncoder):
    """Tells how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = 0
        self.phrases: list[str] = []

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        self.pictures += len(prepared)
        return super().encode_images(prepared)

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        self.phrases += texts
        return super().encode_texts(texts)


@pytest.fixture
def counting(gallery: Gallery) -> Iterator[tuple[Engine, CountingEncoder]]:
    encoder = CountingEncoder()
    engine = Engine(Gallery.open(gallery.path, encoder=encoder), ColourFactorizer(), Settings(references=4))
    engine.calibration.join()  # it encodes phrases too
    encoder.pictures, encoder.phrases = 0, []
    yield engine, encoder
    engine.close()


def test_ranking_again_encodes_only_what_is_new(counting: tuple[Engine, CountingEncoder]) -> None:
    engine, encoder = counting
    reference = opened(engine, flag("red", "white", "red"))
    engine.snapshot().search(SearchOptions.of(reference=reference, spec=EditSpec("a flag", ["blue"]), k=3))
    assert encoder.pictures == 1
    assert sorted(encoder.phrases) == ["a flag", "blue"]
    again = engine.references.get(reference.sha256)
    engine.snapshot().search(SearchOptions.of(reference=again, spec=EditSpec("a flag", ["blue", "zigzag"]), k=3))
    assert encoder.pictures == 1
    assert sorted(encoder.phrases) == ["a flag", "blue", "zigzag"]


def test_a_picture_of_the_gallery_is_never_encoded_again(counting: tuple[Engine, CountingEncoder]) -> None:
    engine, encoder = counting
    pictures = engine.snapshot().pictures
    by_id = pictures.open(Picture(id="red-blue.png"))
    entry = pictures.entry("green-blue.png")
    uploaded = pictures.open_bytes(pictures.bytes_of(entry), LIMITS)
    assert encoder.pictures == 0
    exact = encoder.encode_images([encoder.prepare(by_id.image)])
    np.testing.assert_allclose(by_id.evidence.local_vectors, exact.local_vectors, atol=1e-3)
    assert uploaded.sha256 == entry.sha256


def test_an_int8_bank_is_too_coarse_to_give_a_reference(tmp_path: Path) -> None:
    flag("red", "blue").save(tmp_path / "a.png")
    encoder = CountingEncoder()
    engine = Engine(Gallery.build(tmp_path / "bank", tmp_path, encoder, "int8"), ColourFactorizer())
    encoder.pictures = 0
    engine.snapshot().pictures.open(Picture(id="a.png"))
    engine.close()
    assert encoder.pictures == 1


def test_the_same_filter_gives_the_same_view(counting: tuple[Engine, CountingEncoder]) -> None:
    engine, _ = counting
    snapshot = engine.snapshot()
    assert snapshot.view("left = 'red'") is engine.snapshot().view("left = 'red'")
    assert snapshot.view("  ") is engine.gallery
    assert len(snapshot.view("left = 'red'")) == 4


def test_references_are_forgotten_oldest_first() -> None:
    kept = References(FakeEncoder(), most=2)
    first, second, third = (
        kept.open(png(flag(colour)), LIMITS, lambda key: None) for colour in ("red", "blue", "green")
    )
    assert len(kept) == 2
    with pytest.raises(UnknownReference, match="send the picture again"):
        kept.get(first.sha256)
    assert kept.get(second.sha256) is second
    kept.open(png(flag("black")), LIMITS, lambda key: None)
    assert kept.get(second.sha256) is second, "it was used more recently than the third"
    with pytest.raises(UnknownReference):
        kept.get(third.sha256)


def test_a_large_reference_is_kept_small() -> None:
    reference = References(FakeEncoder(), most=2).open(png(flag("red", size=(3000, 1500))), LIMITS, lambda key: None)
    assert reference.image.size == (1024, 512)


def test_the_vector_of_a_phrase_does_not_depend_on_its_batch() -> None:
    shared, plain = CachingEncoder(FakeEncoder(), together=1, limit=2), FakeEncoder()
    together = shared.encode_texts(["red", "a cat", "red"])
    np.testing.assert_array_equal(together[0], plain.encode_texts(["red"])[0])
    np.testing.assert_array_equal(together[0], together[2])
    np.testing.assert_array_equal(shared.encode_atoms(["a cat"])[0], together[1])
    assert shared.encode_texts([]).shape == (0, 32)


def test_thumbnails_are_made_once() -> None:
    thumbnails, data = Thumbnails(), png(flag("red", "blue", size=(400, 200)))
    made = thumbnails.make("version", 100, data)
    assert thumbnails.find("version", 100) is made
    assert thumbnails.find("other version", 100) is None
    assert made.media_type == "image/png"


def _scores(engine: Engine) -> dict[str, float]:
    reference = opened(engine, flag("white"))
    spec = EditSpec("a flag", ["blue"], (), ["red"])
    ranking = engine.snapshot().search(SearchOptions.of(reference=reference, spec=spec, k=100))
    return {hit.id: hit.score for hit in ranking.hits}


def test_every_answer_is_of_one_state_of_the_gallery_while_it_is_indexed(tmp_path: Path) -> None:
    """Each state has other pictures under other names; between them rows die and shards are rewritten."""
    colours = ["red", "green", "blue", "yellow", "black", "purple", "orange", "pink"]
    states, right = [], []
    for number in range(4):
        folder = tmp_path / f"state{number}"
        folder.mkdir()
        for i in range(20):
            picture = flag(colours[i % 8], colours[(i + number) % 8], colours[i // 8], size=(48, 48 + i))
            picture.save(folder / f"{number}-{i}.png")
        alone = Engine(Gallery.build(tmp_path / f"bank{number}", folder, FakeEncoder()), ColourFactorizer())
        states.append(folder)
        right.append(_scores(alone))
        alone.close()

    pictures = tmp_path / "pictures"
    shutil.copytree(states[0], pictures)
    engine = Engine(Gallery.build(tmp_path / "bank", pictures, FakeEncoder()), ColourFactorizer())

    def index_again_and_again() -> None:
        for state in states[1:] * 4:
            shutil.rmtree(pictures)
            shutil.copytree(state, pictures)
            Gallery.open(tmp_path / "bank", encoder=FakeEncoder()).sync()

    writer = threading.Thread(target=index_again_and_again)
    writer.start()
    seen = set()
    while writer.is_alive():
        told = _scores(engine)
        number = int(next(iter(told)).split("-")[0])
        assert told == pytest.approx(right[number], abs=1e-6)
        seen.add(number)
    writer.join()
    assert _scores(engine) == pytest.approx(right[3], abs=1e-6)
    assert len(seen) > 1
    engine.close()


def test_a_server_goes_on_when_an_index_run_is_stopped_midway(tmp_path: Path) -> None:
    class Stops(FakeEncoder):
        def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
            raise KeyboardInterrupt

    for name in ("red", "blue"):
        flag(name).save(tmp_path / f"{name}.png")
    engine = Engine(Gallery.build(tmp_path / "bank", tmp_path, FakeEncoder()), ColourFactorizer())
    before = _scores(engine)
    (tmp_path / "red.png").unlink()
    flag("green").save(tmp_path / "green.png")
    with pytest.raises(KeyboardInterrupt):
        Gallery.open(tmp_path / "bank", encoder=Stops()).sync()
    assert _scores(engine) == before
    assert set(before) == {"red.png", "blue.png"}
    Gallery.open(tmp_path / "bank", encoder=FakeEncoder()).sync()
    assert set(_scores(engine)) == {"green.png", "blue.png"}
    engine.close()
