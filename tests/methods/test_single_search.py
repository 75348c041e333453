from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapr
from tapr import EditSpec, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.query.spec import Weights
from tapr.search.kernels.choose import choose_kernel
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.refusals import refused


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", SOME_FLAGS)
    return Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())


@pytest.mark.parametrize("method", ["image", "text", "sum", "target", "maxsim", "basic"])
def test_every_method_without_records_ranks_the_whole_gallery(gallery: Gallery, method: str) -> None:
    ranking = tapr.search(gallery, "blue.png", spec=EditSpec("red", ["red"]), k=50, method=method)
    assert ranking.method == method
    assert len(ranking.hits) == 9  # the reference is left out
    scores = [hit.score for hit in ranking.hits]
    assert scores == sorted(scores, reverse=True)
    assert all(hit.contributions[0].value == hit.score for hit in ranking.hits)


def test_image_and_target_are_plain_cosines(gallery: Gallery) -> None:
    reference = flag("red", "white")  # a picture that is not in the gallery
    encoder = gallery.encoder
    vectors = dict(zip(gallery.ids(), gallery.gather(gallery.rows).global_vectors.astype(float), strict=True))
    reference_features = encoder.encode_images([encoder.prepare(reference)]).global_vectors[0]
    for method, query in (("image", reference_features), ("target", encoder.encode_texts(["green"])[0])):
        for hit in tapr.search(gallery, reference, spec=EditSpec("green"), method=method).hits:
            assert hit.score == pytest.approx(float(vectors[hit.id] @ query), abs=1e-5)


def test_a_filter_and_a_picture_narrow_it_too(gallery: Gallery) -> None:
    ranking = tapr.search(gallery, "blue.png", spec=EditSpec("red"), where="id like 'red%'", method="target")
    assert {hit.id for hit in ranking.hits} == {"red.png", "red-white-blue.png", "red-white-green.png"}
    assert np.isfinite([hit.score for hit in ranking.hits]).all()
    assert tapr.search(gallery, "blue.png", spec=EditSpec("red"), where="id = ''", method="target").hits == ()


def test_methods_that_need_a_language_model_say_so(gallery: Gallery) -> None:
    with refused("unknown_name", "ldre"):
        tapr.search(gallery, "blue.png", spec=EditSpec("red"), method="ldre")
    with refused("unknown_name", "magic"):
        tapr.search(gallery, "blue.png", spec=EditSpec("red"), method="magic")


@pytest.mark.parametrize(
    ("method", "options", "named"),
    [
        ("image", {"tau": 0.5}, "tau"),
        ("image", {"weights": Weights(1, 2, 3, 4)}, "weights"),
        ("target", {"tau": 0.02}, "tau"),
        ("maxsim", {"kernel": choose_kernel()}, "kernel"),
        ("text", {"factorizer": "grounded"}, "factorizer"),
    ],
)
def test_an_option_that_a_method_does_not_read_is_refused(
    gallery: Gallery, method: str, options: dict[str, Any], named: str
) -> None:
    with refused("conflicting_options", method, option=named):
        tapr.search(gallery, "blue.png", "in red", method=method, **options)


def test_options_that_a_method_uses_are_accepted(gallery: Gallery) -> None:
    assert tapr.search(gallery, "blue.png", "in red", method="target", factorizer="target-only").spec.target == "in red"
    assert len(tapr.search(gallery, "blue.png", "in red", tau=0.05, weights=Weights(1, 0, 0, 0)).hits) == 9


def test_a_method_without_a_spec_makes_none(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.factorize.grounded.GroundedFactorizer.factorize", lambda *_: pytest.fail("was asked"))
    assert len(tapr.search(gallery, "blue.png", "in red", method="image").hits) == 9


def test_the_papers_score_reads_weights_and_tau_and_nothing_of_our_own(gallery: Gallery) -> None:
    spec = EditSpec("red", ["white"])

    def ids(**options: Any) -> list[float]:
        found = tapr.search(gallery, "blue.png", spec=options.pop("spec", spec), method="tapr-paper", **options)
        return [hit.score for hit in found.hits]

    plain, heavy = ids(), ids(weights=Weights(1, 9, 0, 0))
    assert plain != heavy
    assert ids(spec=EditSpec("red", ["white"], weights=Weights(1, 9, 0, 0))) == heavy
    assert plain != ids(tau=0.5)
    for name, value in (
        ("score", "fixed"),
        ("reference_weight", 0.5),
        ("reference_features", "local"),
        ("kernel", choose_kernel()),
    ):
        with refused("conflicting_options", "tapr-paper", option=name):
            ids(**{name: value})


def test_another_method_reports_no_score_of_tapr(gallery: Gallery) -> None:
    said = tapr.search(gallery, "red.png", spec=EditSpec("blue"), method="target").to_dict()
    assert (said["method"], said["score"], said["reference_weight"]) == ("target", None, None)
    own = tapr.search(gallery, "red.png", spec=EditSpec("blue")).to_dict()
    assert (own["score"], own["reference_weight"]) == ("fixed", 0.4)
