"""Slips in Python: what was plainly meant works, the rest gets one sentence and never a traceback."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tapr
from tapr import EditSpec, Gallery, Weights
from tapr.encoders.fake import FakeEncoder
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.refusals import refused

SPEC = EditSpec("a green picture", ["green"], remove=["blue"])


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    root = tmp_path_factory.mktemp("slips")
    write_flags(root / "p", SOME_FLAGS)
    return Gallery.build(root / "g", root / "p", FakeEncoder())


def ids(ranking: tapr.Ranking) -> list[str]:
    return [hit.id for hit in ranking.hits]


def test_a_spec_may_stand_where_the_edit_stands(gallery: Gallery) -> None:
    wanted = ids(tapr.search(gallery, "blue.png", spec=SPEC))
    assert ids(tapr.search(gallery, "blue.png", SPEC)) == wanted
    assert ids(tapr.search(gallery, "blue.png", spec=SPEC.to_dict())) == wanted
    assert ids(tapr.search(gallery, "blue.png", SPEC.to_dict())) == wanted


def test_weights_may_be_a_mapping_or_text(gallery: Gallery) -> None:
    wanted = tapr.search(gallery, "blue.png", SPEC, weights=Weights(add=2))
    for weights in ({"add": 2}, "add=2"):
        found = tapr.search(gallery, "blue.png", SPEC, weights=weights)
        assert [(hit.id, hit.score) for hit in found.hits] == [(hit.id, hit.score) for hit in wanted.hits]


@pytest.mark.parametrize("as_", [str, Path])
def test_a_gallery_may_be_named_by_its_folder(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, as_: type[str] | type[Path]
) -> None:
    monkeypatch.setattr("tapr.store.own_encoder.load_for_card", lambda card, device: FakeEncoder())
    assert ids(tapr.search(as_(gallery.path), "blue.png", SPEC)) == ids(tapr.search(gallery, "blue.png", SPEC))
    assert len(Gallery(as_(gallery.path))) == len(gallery)


def test_open_files_pictures_and_paths_are_references(gallery: Gallery) -> None:
    path = Path(gallery.sources()[0]) / "blue.png"
    wanted = ids(tapr.search(gallery, path, SPEC))
    with path.open("rb") as file:
        assert ids(tapr.search(gallery, file, SPEC)) == wanted
    assert ids(tapr.search(gallery, path.read_bytes(), SPEC)) == wanted
    with Image.open(path) as picture:
        found = ids(tapr.search(gallery, picture, SPEC))
    assert [id_ for id_ in found if id_ != "blue.png"] == wanted, "its file is not known, so it is not left out"


def test_k_may_be_numpys_and_more_than_there_are(gallery: Gallery) -> None:
    assert len(tapr.search(gallery, "blue.png", SPEC, k=np.int64(3)).hits) == 3  # type: ignore[arg-type]
    assert len(tapr.search(gallery, "blue.png", SPEC, k=10_000).hits) == len(gallery) - 1


@pytest.mark.parametrize(
    ("slip", "code", "named"),
    [
        ({"k": "5"}, "bad_option", "'5'"),
        ({"k": 5.0}, "bad_option", "5.0"),
        ({"k": True}, "bad_option", "True"),
        ({"k": 0}, "bad_option", "0"),
        ({"k": -3}, "bad_option", "-3"),
        ({"offset": -1}, "bad_option", "-1"),
        ({"threshold": float("nan")}, "bad_option", "nan"),
        ({"weights": [1, 2]}, "bad_spec", "weights"),
        ({"weights": 3}, "bad_spec", "weights"),
        ({"weights": {"plus": 1}}, "bad_spec", "plus"),
        ({"weights": {1: 2, "x": 3}}, "bad_spec", "1"),
        ({"weights": {"add": "2"}}, "bad_spec", "add"),
        ({"tau": "0.02"}, "bad_option", "'0.02'"),
        ({"tau": [0.02]}, "bad_option", "list"),
        ({"where": {"price": 3}}, "bad_option", "where"),
        ({"method": ["tapr"]}, "bad_option", "method"),
        ({"kernel": "numpy"}, "bad_input", "choose_kernel"),
        ({"edit": 5}, "bad_option", "5"),
        ({"edit": ["red"]}, "bad_option", "list"),
        ({"edit": SPEC, "spec": SPEC}, "bad_option", "edit"),
        ({"edit": {"add": ["red"]}}, "bad_spec", "target"),
        ({"edit": None, "spec": "red"}, "bad_option", "EditSpec"),
        ({"edit": None, "spec": Path("spec.json")}, "bad_option", "EditSpec.from_file"),
        ({"edit": None, "spec": 5}, "bad_option", "5"),
        ({"edit": "red", "factorizer": 5}, "bad_input", "factorizer"),
        ({"edit": "red", "factorizer": FakeEncoder}, "bad_input", "factorizer"),
        ({"reference": None, "edit": "in red"}, "missing_option", "reference"),
        ({"reference": SPEC}, "bad_input", "EditSpec"),
        ({"gallery": None}, "no_gallery", "None"),
        ({"gallery": ["g"]}, "no_gallery", "list"),
        ({"gallery": b"g"}, "no_gallery", "b'g'"),
        ({"gallery": "no-such-folder"}, "no_gallery", "no-such-folder"),
    ],
)
def test_a_wrong_argument_of_search_gets_one_sentence(
    gallery: Gallery, slip: dict[str, Any], code: str, named: str
) -> None:
    arguments: dict[str, Any] = {"gallery": gallery, "reference": "blue.png", "edit": SPEC, **slip}
    with refused(code, named):
        tapr.search(**arguments)


@pytest.mark.parametrize(
    ("slip", "code", "fact"),
    [
        ({"path": None}, "no_gallery", "None"),
        ({"path": 5}, "no_gallery", "5"),
        ({"images": None}, "bad_input", "no pictures"),
        ({"images": 5}, "bad_option", "5"),
        ({"images": b"p"}, "bad_option", "b'p'"),
        ({"images": {"a": "b"}}, "bad_option", "dict"),
        ({"images": [flag("red")]}, "bad_option", "Image"),
        ({"images": flag("red")}, "bad_option", "Image"),
        ({"images": [None]}, "bad_option", "None"),
        ({"images": []}, "bad_input", "no pictures"),
        ({"encoder": FakeEncoder}, "bad_option", "FakeEncoder"),
        ({"encoder": 5}, "bad_option", "5"),
        ({"precision": "fp32"}, "bad_option", "'fp32'"),
        ({"precision": 16}, "bad_option", "16"),
        ({"extractor": "dino"}, "bad_option", "'dino'"),
        ({"fit": "stretch"}, "bad_input", "'stretch'"),
        ({"arithmetic": "int4"}, "bad_option", "'int4'"),
        ({"rehash": 1}, "bad_option", "1"),
        ({"reencode": True}, "bad_option", "'reencode'"),
        ({"columns": "price"}, "bad_option", "NAME=TYPE"),
        ({"move": ["a"]}, "bad_option", "pairs"),
        ({"extractor": 5}, "bad_option", "5"),
        ({"template": 5}, "bad_option", "5"),
    ],
)
def test_wrong_arguments_of_build_get_one_sentence(tmp_path: Path, slip: dict[str, Any], code: str, fact: str) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:1])
    arguments: dict[str, Any] = {"path": tmp_path / "g", "images": tmp_path / "p", "encoder": FakeEncoder(), **slip}
    with refused(code, fact):
        Gallery.build(**arguments)
    assert not (tmp_path / "g").exists()


def test_sync_takes_one_path_as_build_does(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:1])
    write_flags(tmp_path / "q", SOME_FLAGS[1:2])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    gallery.sync(tmp_path / "q")
    assert len(gallery) == 2
    with refused("bad_option", "5", option="images"):
        gallery.sync(5)  # type: ignore[arg-type]


def test_a_wrong_argument_of_open_gets_one_sentence(gallery: Gallery) -> None:
    with refused("bad_input", "encoder"):
        Gallery.open(gallery.path, encoder="clip-b16")  # type: ignore[arg-type]
    with refused("bad_option", "FakeEncoder", option="encoder"):
        Gallery.open(gallery.path, encoder=FakeEncoder)  # type: ignore[arg-type]
    with refused("no_gallery", "Gallery"):
        Gallery.open(gallery)  # type: ignore[arg-type]
