"""Marked pictures: more like this one, not like that one. Written out against the definition, for every kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapr
from tapr import EditSpec, Gallery, Weights
from tapr.encoders.base import Evidence, unit
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.explain.heatmap import heat_of
from tapr.explain.marks import marked
from tapr.query.scoring import REFERENCE_FEATURES, ReferenceFeatures
from tapr.score import definition
from tapr.score.compile import FEEDBACK, Continuity, Feedback, compile_query, weigh
from tapr.search.kernels.base import Kernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score
from tests.pictures import flag, write_flags
from tests.search.banks import random_bank

ENCODER = FakeEncoder()
SPEC = EditSpec("a red flag", ["red"], ["blue"], ["white"])


def evidence_of(*colours: str) -> Evidence:
    return ENCODER.encode_images([ENCODER.prepare(flag(*colours))])


def likeness(picture: Evidence, candidate: Evidence, features: ReferenceFeatures) -> float:
    parts = REFERENCE_FEATURES[features if len(picture.global_vectors) else "local"]
    whole = (
        float(picture.global_vectors[0].astype(np.float64) @ candidate.global_vectors[0]) if "global" in parts else 0
    )
    local = float(definition.late_interaction(picture.local_vectors[0], candidate.local_vectors[0]))
    return parts.get("global", 0.0) * whole + parts.get("local", 0.0) * local


@pytest.mark.parametrize("spec", [SPEC, EditSpec("a red flag")], ids=["atoms", "target alone"])
@pytest.mark.parametrize("features", ["local", "global", "both"])
@pytest.mark.parametrize("theta", [Weights(), Weights(1, 0.5, 0, 0.3), Weights(1, 0.5, 0.4, 0), Weights(0, 0, 2, 1)])
def test_the_score_is_the_plain_score_and_what_the_marked_pictures_add(
    spec: EditSpec, features: ReferenceFeatures, theta: Weights
) -> None:
    reference, candidate = evidence_of("red", "white"), evidence_of("blue", "green")
    more, less = [evidence_of("green"), evidence_of("blue", "red")], [evidence_of("white", "green")]
    feedback = [Feedback("preserve", str(i), one) for i, one in enumerate(more)]
    feedback += [Feedback("remove", str(i), one) for i, one in enumerate(less)]
    continuity = Continuity(0.4, features)
    plain = compile_query(spec, reference, ENCODER, theta, continuity=continuity)
    parts = weigh(spec, True, theta, continuity)
    scale = 0.4 / sum(abs(part.weight) for part in parts if part.factor == "continuity")  # what it was divided by
    vectors = candidate.global_vectors, candidate.local_vectors
    wanted = scale * float(definition.score(plain, *vectors)[0])
    wanted += (
        theta.preserve * FEEDBACK["preserve"] * float(np.mean([likeness(one, candidate, features) for one in more]))
    )
    wanted -= theta.remove * FEEDBACK["remove"] * likeness(less[0], candidate, features)
    scale += theta.preserve * FEEDBACK["preserve"] + theta.remove * FEEDBACK["remove"]

    query = compile_query(spec, reference, ENCODER, theta, continuity=continuity, feedback=feedback)
    assert definition.score(query, *vectors)[0] == pytest.approx(wanted / scale, abs=1e-6)
    terms = definition.term_scores(query, *vectors)[0]
    assert terms.sum() == pytest.approx(wanted / scale, abs=1e-6)
    said = [term.text for term in query.terms if term.feedback]
    assert len(said) == len(set(said)) == 3 * len(REFERENCE_FEATURES[features])


@pytest.mark.parametrize("places", [1, 9, 49])
def test_every_kernel_gives_what_the_definition_gives(kernel: Kernel, places: int) -> None:
    rng = np.random.default_rng(places)
    bank = MemoryBank.of(*random_bank(rng, 40, places, 32))
    marks = [
        Feedback(
            factor, str(i), Evidence(unit(rng.standard_normal((1, 32))), unit(rng.standard_normal((1, places, 32))))
        )
        for i in range(4)
        for factor in ("preserve", "remove")
    ]
    double = Evidence(bank.block.global_vectors[:1].astype(np.float32), bank.block.decoded()[:1].astype(np.float32))
    marks += [Feedback("preserve", "in the bank", double), Feedback("remove", "in the bank", double)]
    for reference in (None, double):
        query = compile_query(SPEC, reference, ENCODER, continuity=Continuity(0.5), feedback=marks)
        right = definition.score(query, bank.block.global_vectors, bank.block.decoded())
        np.testing.assert_allclose(score(query, bank, kernel), right, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    folder = tmp_path_factory.mktemp("feedback")
    pairs = [("red", "blue"), ("red", "green"), ("blue", "green"), ("green",), ("blue",), ("white", "red"), ("yellow",)]
    write_flags(folder / "p", pairs)
    return Gallery.build(folder / "g", folder / "p", ENCODER)


def test_marks_move_pictures_and_say_so(gallery: Gallery) -> None:
    plain = tapr.search(gallery, text="red", k=7)
    ranking = tapr.search(gallery, text="red", k=7, more_like=["green.png"], not_like=["red-blue.png"])
    left = [hit.id for hit in ranking.hits]
    assert set(left) == {hit.id for hit in plain.hits} - {"green.png", "red-blue.png"}
    before = [hit.id for hit in plain.hits if hit.id in left]
    assert left.index("blue.png") > before.index("blue.png"), "it is like what is not wanted"
    assert any("green.png" in note and "red-blue.png" in note for note in ranking.notes)
    for hit in marked(ranking).hits:
        assert sum(part.value for part in hit.contributions) == pytest.approx(hit.score)
        of_marks = [part for part in hit.contributions if "green.png" in part.text or "red-blue.png" in part.text]
        assert [(part.factor, part.reads) for part in of_marks] == [
            ("preserve", "global"), ("preserve", "local"), ("remove", "global"), ("remove", "local"),
        ]  # fmt: skip
        assert all(part.peak is None and part.found is None for part in of_marks), "a picture is no phrase"
    heats = heat_of(ranking.query, gallery, 0)
    assert [heat.term.factor for heat in heats] == ["preserve", "remove"]
    assert all(heat.cosines is None and heat.term.feedback for heat in heats)
    kept = tapr.search(gallery, text="red", k=7, more_like=["green.png"], exclude_reference=False)
    assert "green.png" in [hit.id for hit in kept.hits]


def test_equal_pictures_keep_the_order_of_the_gallery(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    for name in ("c", "a", "b"):
        (tmp_path / "p" / f"{name}.png").write_bytes((tmp_path / "p" / "blue.png").read_bytes())
    small = Gallery.build(tmp_path / "g", tmp_path / "p", ENCODER)
    hits = tapr.search(small, text="red", more_like=["red.png"]).hits
    assert [hit.id for hit in hits] == ["a.png", "b.png", "blue.png", "c.png"]
    assert len({hit.score for hit in hits}) == 1


def test_without_marks_nothing_changes(gallery: Gallery) -> None:
    asked: dict[str, Any] = {"reference": "red-green.png", "spec": SPEC, "k": 7}
    plain, same = tapr.search(gallery, **asked), tapr.search(gallery, **asked, more_like=[], not_like=())
    assert [(hit.id, hit.score, hit.contributions) for hit in plain.hits] == [
        (hit.id, hit.score, hit.contributions) for hit in same.hits
    ]
    np.testing.assert_array_equal(plain.query.weights, same.query.weights)


def test_pictures_outside_the_gallery_and_parts_of_pictures(gallery: Gallery) -> None:
    from tapr.query.crop import cropped
    from tapr.query.open_reference import open_reference

    part = cropped(open_reference(flag("green", "red"), ENCODER), (0, 0, 0.5, 1))
    ranking = tapr.search(gallery, text="blue", more_like=[part])
    (term,) = [term for term in ranking.query.terms if term.feedback]
    assert (term.reads, term.stop - term.start < ENCODER.card.locals_count) == ("local", True)
    assert "picture 1" in term.text
    with pytest.raises(BadInput) as caught:
        tapr.search(gallery, text="blue", more_like=[flag("green")], not_like=[flag("green")])
    assert caught.value.code == "conflicting_options"
