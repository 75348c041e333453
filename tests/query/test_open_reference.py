"""One file, one set of vectors: whichever way it comes in, and whoever opens it."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr import BadInput, Gallery
from tapr.encoders.base import Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.factorize.picture import picture_only
from tapr.query.open_reference import SHOWN_SIDE, open_bytes, open_reference
from tests.pictures import SOME_FLAGS, flag, png, write_flags

ON_ITS_SIDE = 6  # the EXIF orientation of a camera held upright


def noise(width: int, height: int) -> Image.Image:
    """Rough enough that a JPEG decoded at another size gives other pixels."""
    values = np.random.default_rng(5).integers(0, 255, (height // 4, width // 4, 3), np.uint8)
    return Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC)


def file_bytes(image: Image.Image, format_: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = ON_ITS_SIDE
    return file_bytes(noise(1500, 1000), "JPEG", quality=90, exif=exif)


MAKERS: dict[str, Callable[[], bytes]] = {
    "large.jpg": lambda: file_bytes(noise(1500, 1000), "JPEG", quality=90),
    "turned.jpg": turned,
    "small.jpg": lambda: file_bytes(noise(60, 40), "JPEG"),
    "large.png": lambda: file_bytes(noise(1200, 800), "PNG", compress_level=1),
    "large.webp": lambda: file_bytes(noise(1200, 800), "WEBP", quality=80),
}


@pytest.fixture(scope="module", params=MAKERS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / str(request.param)
    path.write_bytes(MAKERS[request.param]())
    return path


def same(first: Evidence, second: Evidence) -> bool:
    return np.array_equal(first.global_vectors, second.global_vectors) and np.array_equal(
        first.local_vectors, second.local_vectors
    )


def indexed(file: Path, folder: Path, *, among: bool, precision: str = "fp16") -> Gallery:
    """A gallery of flags, and of the file too when it is to be among them."""
    write_flags(folder / "p", SOME_FLAGS[:3])
    sources = [folder / "p", file] if among else [folder / "p"]
    return Gallery.build(folder / "g", sources, FakeEncoder(), precision)  # type: ignore[arg-type]


@pytest.mark.parametrize("among", [False, True], ids=["not in the gallery", "in the gallery"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_every_way_gives_the_same_bits(file: Path, tmp_path: Path, among: bool, precision: str) -> None:
    gallery = indexed(file, tmp_path, among=among, precision=precision)
    encoder = gallery.encoder
    opened = open_reference(file, encoder, gallery)
    for other in (str(file), file.read_bytes(), bytearray(file.read_bytes()), io.BytesIO(file.read_bytes())):
        again = open_reference(other, encoder, gallery)
        assert same(again.evidence, opened.evidence)
        assert again.sha256 == opened.sha256
        assert again.image.tobytes() == opened.image.tobytes()
    with file.open("rb") as stream:
        assert same(open_reference(stream, encoder, gallery).evidence, opened.evidence)
    if among:
        assert same(open_reference(file.name, encoder, gallery).evidence, opened.evidence), "by its id"


@pytest.mark.parametrize("among", [False, True], ids=["not in the gallery", "in the gallery"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_the_server_opens_it_as_the_library_does(file: Path, tmp_path: Path, among: bool, precision: str) -> None:
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from starlette.testclient import TestClient

    import tapr
    from tapr.server.app import create_app

    gallery = indexed(file, tmp_path, among=among, precision=precision)
    spec = tapr.EditSpec("a red picture", ["red"], remove=["blue"])
    wanted = tapr.search(gallery, file, spec)
    app = create_app(gallery, factorizer="target-only")
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        reply = client.post("/api/search", data={"spec": spec.to_json()}, files={"reference": file.read_bytes()})
        assert reply.status_code == 200
        answer = reply.json()
        kept = app.state.engine.references.get(answer["reference"]["key"])
    assert wanted.reference is not None
    assert same(kept.evidence, wanted.references[0].evidence)
    assert kept.image.tobytes() == wanted.references[0].image.tobytes()
    assert [(hit["id"], hit["score"]) for hit in answer["hits"]] == [(hit.id, hit.score) for hit in wanted.hits]


def test_it_has_the_vectors_that_the_index_makes_of_it(file: Path, tmp_path: Path) -> None:
    gallery = indexed(file, tmp_path, among=True)
    row = gallery.gather(gallery.rows[[gallery.position_of(file.name)]])
    fresh = open_reference(file, FakeEncoder())
    assert np.array_equal(fresh.evidence.local_vectors.astype(np.float16), row.decoded())
    assert np.array_equal(fresh.evidence.global_vectors.astype(np.float16), row.global_vectors)
    stored = open_reference(file, gallery.encoder, gallery)
    assert np.array_equal(stored.evidence.local_vectors, row.decoded().astype(np.float32))


def test_the_picture_is_the_same_with_and_without_an_encoder(file: Path, tmp_path: Path) -> None:
    with_vectors = open_reference(file, FakeEncoder())
    gallery = indexed(file, tmp_path, among=True)
    opened_references = [with_vectors, picture_only(file), open_reference(file, gallery.encoder, gallery)]
    assert len({look.image.tobytes() for look in opened_references}) == 1
    with Image.open(file) as whole:
        assert max(with_vectors.image.size) == min(SHOWN_SIDE, max(whole.size))


def test_a_turned_picture_stands_upright(tmp_path: Path) -> None:
    image = open_reference(turned(), FakeEncoder()).image
    assert image.height > image.width


def test_vectors_of_another_encoder_are_not_taken(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:3])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    other = FakeEncoder(grid=(2, 2))
    assert open_reference(tmp_path / "p" / "red-white-blue.png", other, gallery).evidence.local_vectors.shape[1] == 4


class Named(os.PathLike[str]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_pictures_and_other_paths_can_be_given(tmp_path: Path) -> None:
    (path,) = write_flags(tmp_path, [("red", "blue")])
    opened = open_reference(path, FakeEncoder())
    for source in (Named(path), flag("red", "blue"), memoryview(path.read_bytes())):
        assert same(open_reference(source, FakeEncoder()).evidence, opened.evidence)
    with Image.open(path) as picture:
        assert same(open_reference(picture, FakeEncoder()).evidence, opened.evidence)


def closed_file(folder: Path) -> Any:
    stream = (folder / "red.png").open("rb")
    stream.close()
    return stream


def read_file(folder: Path) -> Any:
    stream = io.BytesIO((folder / "red.png").read_bytes())
    stream.read()
    return stream


def closed_image(folder: Path) -> Any:
    image = Image.open(folder / "red.png")
    image.close()
    return image


def cut_image(folder: Path) -> Any:
    """Pillow has read its head alone when it is handed over."""
    return Image.open(io.BytesIO(file_bytes(noise(400, 400), "PNG")[:2000]))


class Endless:
    """More than is allowed, whatever is asked for."""

    def read(self, size: int = -1) -> bytes:
        return b"x" * size


class Wordy:
    def read(self, size: int = -1) -> str:
        return "text"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: None, "of the type NoneType: give a path"),
        (lambda folder: 7, "of the type int"),
        (lambda folder: [folder / "red.png"], "of the type list"),
        (lambda folder: np.zeros((4, 4, 3), np.float32), "float32"),
        (lambda folder: (folder / "red.png").open(encoding="latin-1"), "opened as text: open it with 'rb'"),
        (closed_file, "cannot be read"),
        (read_file, "nothing left to read"),
        (closed_image, "broken, cut off or closed"),
        (cut_image, "broken, cut off or closed"),
        (lambda folder: Image.new("RGB", (0, 5)), "has no pixels"),
        (lambda folder: Endless(), "is larger than the 128 MB allowed"),
        (lambda folder: Wordy(), "gave str, not bytes"),
        (lambda folder: b"", "the reference is empty"),
        (lambda folder: "x" * 5000, "there is no file"),
        (lambda folder: "nul\0nul", "there is no file"),
        (lambda folder: "~nobody-of-that-name/x.png", "there is no file"),
        (lambda folder: folder, "is a folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed file")
def test_what_is_no_reference_gets_one_sentence(tmp_path: Path, make: Callable[[Path], Any], reason: str) -> None:
    (tmp_path / "red.png").write_bytes(png(flag("red")))
    given = make(tmp_path)
    with pytest.raises(BadInput, match=reason) as caught:
        open_reference(given, FakeEncoder())
    assert "\n" not in str(caught.value)
    if isinstance(given, io.IOBase):
        given.close()


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "JPEG"])
def test_a_large_picture_is_shown_as_if_it_were_decoded_for_that(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.images.decode._LARGE", 1_000_000)
    buffer = io.BytesIO()
    flag("red", "green", "blue", size=(3000, 2400)).save(buffer, format_)
    opened = open_bytes(buffer.getvalue(), FakeEncoder(), lambda _: None)
    again = open_bytes(buffer.getvalue(), FakeEncoder(), lambda _: opened.evidence)
    assert opened.image.tobytes() == again.image.tobytes()
    assert max(opened.image.size) == 1024
