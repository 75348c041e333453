import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tapr
from tapr import EditSpec, Gallery, Weights
from tapr.encoders.fake import FakeEncoder
from tapr.query.factorization import Factorization
from tapr.query.open_reference import open_reference
from tapr.query.reference import Reference
from tapr.score import definition
from tapr.search.sweep import score
from tests.pictures import SOME_FLAGS, flag, png, write_flags
from tests.refusals import refused


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", SOME_FLAGS)
    return Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())


class Reddening:
    """A factorizer that always wants it red."""

    name = "reddening"

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        return Factorization(EditSpec("red", ["red"], remove=["blue"]), self.name, ("made it red",))


def test_like_this_but_green_instead_of_blue(gallery: Gallery) -> None:
    spec = EditSpec("a red white and green flag", add=["green"], preserve=["red", "white"], remove=["blue"])
    ranking = tapr.search(gallery, "red-white-blue.png", spec=spec)
    assert ranking.hits[0].id == "red-white-green.png"
    assert [hit.rank for hit in ranking.hits] == list(range(1, 10))
    assert "red-white-blue.png" not in [hit.id for hit in ranking.hits]
    assert ranking.searched == 9
    assert (ranking.encoder, ranking.factorizer) == ("fake", "given")


def test_contributions_sum_to_the_score_and_the_score_is_the_definition(gallery: Gallery) -> None:
    spec = EditSpec("red", ["green", "white"], ["red"], ["blue"])
    ranking = tapr.search(gallery, "blue.png", spec=spec, k=100, exclude_reference=False)
    block = gallery.gather(gallery.rows)
    exact = definition.score(ranking.query, block.global_vectors, block.decoded())
    by_id = dict(zip(gallery.ids(), exact, strict=True))
    for hit in ranking.hits:
        assert sum(part.value for part in hit.contributions) == pytest.approx(hit.score, abs=1e-9)
        assert hit.score == pytest.approx(by_id[hit.id], abs=1e-9)
        assert [part.factor for part in hit.contributions] == [
            "target",
            "add",
            "add",
            "preserve",
            "continuity",
            "continuity",
            "remove",
        ]
    assert np.abs(score(ranking.query, gallery) - exact).max() < 1e-5


@pytest.mark.parametrize("precision", ["fp16", "int8", "both"])
def test_every_precision_answers(tmp_path: Path, precision: str) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), precision)  # type: ignore[arg-type]
    ranking = tapr.search(gallery, "blue.png", spec=EditSpec("red", ["red"], remove=["blue"]), k=3)
    assert ranking.hits[0].id == "red.png"
    assert len(ranking.hits) == 3


def test_a_search_tells_how_many_pictures_were_read_exactly(tmp_path: Path) -> None:
    colours = ("red", "green", "blue", "white")
    write_flags(tmp_path / "p", list(itertools.product(colours, repeat=3)))
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    ranking = tapr.search(gallery, "blue-blue-blue.png", spec=EditSpec("red", ["red"], remove=["blue"]), k=1)
    assert ranking.rescored is not None
    assert 2 <= ranking.rescored <= 64
    assert f"{ranking.rescored} of 64 pictures read exactly" in ranking.matched
    assert ranking.to_dict()["rescored"] == ranking.rescored
    assert tapr.search(gallery, "red-red-red.png", spec=EditSpec("red"), k=64).rescored is None  # all of them


def test_a_reference_is_a_path_bytes_a_picture_or_an_id(gallery: Gallery, tmp_path: Path) -> None:
    spec = EditSpec("green")
    path = tmp_path / "p" / "red-white-blue.png"
    rankings = [
        tapr.search(gallery, reference, spec=spec, exclude_reference=False)
        for reference in (path, str(path), path.read_bytes(), flag("red", "white", "blue"), "red-white-blue.png")
    ]
    assert len({tuple(hit.id for hit in ranking.hits) for ranking in rankings}) == 1


def test_a_picture_of_the_gallery_has_the_gallerys_vectors(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (300, 500, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "p" / "big.jpg")  # so big that the JPEG is decoded at a smaller size
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    opened = open_reference("big.jpg", gallery.encoder, gallery)
    assert np.array_equal(opened.evidence.local_vectors.astype(np.float16), gallery.gather(gallery.rows).decoded())


def test_the_reference_is_left_out_by_content_not_by_name(gallery: Gallery, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.png"
    copy.write_bytes((tmp_path / "p" / "red.png").read_bytes())
    assert "red.png" not in [hit.id for hit in tapr.search(gallery, copy, spec=EditSpec("red")).hits]
    assert "red.png" in [
        hit.id for hit in tapr.search(gallery, copy, spec=EditSpec("red"), exclude_reference=False).hits
    ]


def test_ties_keep_gallery_order(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for name in "dacb":  # the same colours in files of unlike bytes
        (tmp_path / "p" / f"{name}.png").write_bytes(png(flag("red")) + name.encode())
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    ranking = tapr.search(gallery, flag("blue"), spec=EditSpec("red"))
    assert [hit.id for hit in ranking.hits] == ["a.png", "b.png", "c.png", "d.png"]


def test_an_edit_goes_through_the_factorizer(gallery: Gallery) -> None:
    ranking = tapr.search(gallery, "blue.png", "make it warm", factorizer=Reddening())
    assert ranking.hits[0].id == "red.png"
    assert ranking.factorizer == "reddening"
    assert ranking.notes == ("made it red",)


def test_weights_and_filters_change_the_answer(gallery: Gallery) -> None:
    spec = EditSpec("green", ["green"])
    assert tapr.search(gallery, "blue.png", spec=spec, weights=Weights(1, 1, 0, 0)).hits[0].id == "green.png"
    alike = tapr.search(gallery, "blue.png", spec=spec, weights=Weights(0, 0, 1, 0)).hits[0].id
    assert "blue" in alike
    assert [hit.id for hit in tapr.search(gallery, "blue.png", spec=spec, where="id like 'red%'", k=2).hits] == [
        "red-white-green.png",
        "red-white-blue.png",
    ]
    assert tapr.search(gallery, "blue.png", spec=spec, where="id = 'none'").hits == ()


def test_a_target_too_long_for_the_encoder_is_told(gallery: Gallery) -> None:
    ranking = tapr.search(gallery, "blue.png", spec=EditSpec("very " * 90 + "red"))
    assert "reads only the beginning" in ranking.notes[0]


def test_the_answer_is_json_ready(gallery: Gallery) -> None:
    import json

    value = json.loads(json.dumps(tapr.search(gallery, "blue.png", spec=EditSpec("red"), k=2).to_dict()))
    assert [hit["rank"] for hit in value["hits"]] == [1, 2]
    assert value["spec"]["target"] == "red"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"reference": "none.png", "edit": "x"}, "unknown_picture"),
        ({"reference": b"junk", "edit": "x"}, "not_a_picture"),
        ({"reference": "red.png"}, "missing_option"),
        ({"reference": "red.png", "edit": "  "}, "missing_option"),
        ({"reference": "red.png", "edit": "x" * 1001}, "bad_option"),
        ({"reference": "red.png", "edit": "x", "spec": EditSpec("y")}, "conflicting_options"),
        ({"reference": "red.png", "spec": EditSpec("y"), "k": 0}, "bad_option"),
        ({"reference": "red.png", "spec": EditSpec("y"), "where": "1"}, "bad_filter"),
        ({"reference": "red.png", "edit": "x", "factorizer": "gpt"}, "unknown_name"),
    ],
)
def test_mistakes_are_said_in_a_sentence(gallery: Gallery, arguments: dict[str, object], code: str) -> None:
    with refused(code):
        tapr.search(gallery, **arguments)  # type: ignore[arg-type]
