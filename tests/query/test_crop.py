"""A part of a reference, and several references: the score is the law's, written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tapr
from tapr import EditSpec, Weights
from tapr.encoders.base import Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.query.crop import cells_inside, checked_box, cropped, kept_evidence
from tapr.query.open_reference import open_reference
from tapr.query.reference import Reference
from tapr.score import definition
from tapr.score.compile import CHOSEN, PARTS, WHOLE, Continuity, compile_query
from tests.pictures import flag, png
from tests.refusals import refused

ENCODER = FakeEncoder()
ROWS, COLUMNS = ENCODER.card.grid
LEFT = (0.0, 0.0, 0.5, 1.0)


def reference_of(*colours: str, size: tuple[int, int] = (64, 64)) -> Reference:
    return open_reference(png(flag(*colours, size=size)), ENCODER)


def candidate() -> Evidence:
    return ENCODER.encode_images([ENCODER.prepare(flag("blue", "green"))])


def late(probes: np.ndarray, v: np.ndarray) -> float:
    return float(definition.late_interaction(probes, v, 0.02))


def test_only_the_cells_inside_are_probes_and_the_whole_does_not_count() -> None:
    reference, other = cropped(reference_of("red", "white"), LEFT), candidate()
    inside = cells_inside(LEFT, reference.image.size, ENCODER.card).reshape(ROWS, COLUMNS)
    assert inside[:, : COLUMNS // 2].all()
    assert not inside[:, (COLUMNS + 1) // 2 :].any()
    kept = kept_evidence(reference, ENCODER.card)
    query = compile_query(EditSpec("a flag"), kept, ENCODER, Weights(1, 0, 0, 0), continuity=Continuity(0.4))
    assert [(term.text, term.reads) for term in query.terms if term.factor == "continuity"] == [(CHOSEN, "local")]
    v0, v = other.global_vectors[0].astype(np.float64), other.local_vectors[0].astype(np.float64)
    probes = reference.evidence.local_vectors[0][inside.reshape(-1)]
    words = float(ENCODER.encode_texts(["a flag"])[0] @ v0)
    (score,) = definition.score(query, other.global_vectors, other.local_vectors)
    assert score == pytest.approx(0.6 * words + 0.4 * late(probes, v), abs=1e-6)


@pytest.mark.parametrize("paper", [True, False])
def test_several_references_share_the_reference_weight_equally(paper: bool) -> None:
    whole, part, other = reference_of("red", "white"), cropped(reference_of("blue", "yellow"), LEFT), candidate()
    kept = [kept_evidence(one, ENCODER.card) for one in (whole, part)]
    continuity = None if paper else Continuity(0.4)
    query = compile_query(EditSpec("a flag"), kept, ENCODER, Weights(1, 0, 0.5, 0), continuity=continuity)
    v0, v = other.global_vectors[0].astype(np.float64), other.local_vectors[0].astype(np.float64)
    words = float(ENCODER.encode_texts(["a flag"])[0] @ v0)
    first, second = (late(one.local_vectors[0], v) for one in kept)
    if paper:
        wanted = (words + 0.5 * (first + second) / 2) / 1.5
    else:
        as_a_whole = float(whole.evidence.global_vectors[0] @ v0)
        wanted = 0.6 * words + 0.4 * ((as_a_whole + first) / 2 + second) / 2
    (score,) = definition.score(query, other.global_vectors, other.local_vectors)
    assert score == pytest.approx(wanted, abs=1e-6)
    names = [term.text for term in query.terms if term.factor == "continuity"]
    own = [f"{PARTS} (picture 1)", f"{CHOSEN} (picture 2)"]
    assert names == (own if paper else [f"{WHOLE} (picture 1)", *own])


def test_a_rectangle_smaller_than_a_cell_is_the_cell_that_holds_its_middle() -> None:
    box = (0.01, 0.01, 0.02, 0.02)
    assert cells_inside(box, (64, 64), ENCODER.card).nonzero()[0].tolist() == [0]


def test_what_the_encoder_does_not_see_is_refused() -> None:
    with refused("bad_option", option="crop"):
        cells_inside((0.0, 0.0, 0.1, 1.0), (400, 100), ENCODER.card)
    middle = cells_inside((0.375, 0.0, 0.625, 1.0), (400, 100), ENCODER.card)
    assert middle.all()


@pytest.mark.parametrize("text", ["", "0,0,1", "0,0,1,x", "0.5,0,0.5,1", "0,0,1,1.1", "0.6,0,0.5,1", "nan,0,1,1"])
def test_no_rectangle_is_refused_in_one_sentence(text: str) -> None:
    with refused("bad_option", option="crop"):
        checked_box(text)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    root: Path = tmp_path_factory.mktemp("crop")
    for colours in (("red", "green"), ("red", "blue"), ("green", "blue"), ("yellow", "black"), ("blue", "yellow")):
        flag(*colours, size=(64, 64)).save(root / f"{'-'.join(colours)}.png")
    flag("red", "green", size=(64, 64)).save(root / "again.png")
    flag("red", "green", size=(64, 64)).save(root / "last.bmp")
    return Gallery.build(root / "bank", root, FakeEncoder())


def test_a_search_reads_the_part_alone(gallery: Gallery) -> None:
    reference = png(flag("yellow", "red", size=(64, 64)))
    spec = EditSpec("a flag", continuity=1.0)
    right = tapr.search(gallery, reference, spec=spec, crop=(0.5, 0, 1, 1))
    left = tapr.search(gallery, reference, spec=spec, crop=LEFT)
    assert "red" in right.hits[0].id or right.hits[0].id in ("again.png", "last.bmp")
    assert "yellow" in left.hits[0].id
    assert any("only the chosen part counts" in note for note in left.notes)
    assert left.searched_by == "a picture alone"


def test_several_references_are_all_left_out_of_the_answer(gallery: Gallery) -> None:
    found = tapr.search(gallery, "red-blue.png", spec=EditSpec("a flag"), more_references=["green-blue.png"])
    assert {"red-blue.png", "green-blue.png"}.isdisjoint(hit.id for hit in found.hits)
    assert any("2 references" in note and "your words apply to all" in note for note in found.notes)
    alike = tapr.search(gallery, like="red-blue.png", more_references=["green-blue.png"])
    assert "2 references: pictures count equally" in alike.notes
    with refused("bad_option", option="more_references"):
        tapr.search(gallery, "red-blue.png", spec=EditSpec("a flag"), more_references=["green-blue.png"] * 3)
    with refused("missing_option", option="crop"):
        tapr.search(gallery, spec=EditSpec("a flag"), crop=LEFT)
    with refused("bad_option", option="reference_features"):
        tapr.search(gallery, "red-blue.png", spec=EditSpec("a flag"), crop=LEFT, reference_features="global")


def test_equal_pictures_are_marked_and_keep_their_ranks(gallery: Gallery) -> None:
    plain = tapr.search(gallery, text="red")
    marked = tapr.search(gallery, text="red", near_duplicates=0.999)
    assert [(hit.rank, hit.id, hit.score) for hit in marked.hits] == [
        (hit.rank, hit.id, hit.score) for hit in plain.hits
    ]
    same = {"red-green.png", "again.png", "last.bmp"}
    first = next(hit for hit in marked.hits if hit.id in same)
    assert first.near_duplicate_of is None
    assert {hit.id for hit in marked.hits if hit.near_duplicate_of == first.id} == same - {first.id}
    assert not any(hit.near_duplicate_of for hit in plain.hits)
    with refused("bad_option", option="near_duplicates"):
        tapr.search(gallery, text="red", near_duplicates=1.5)
