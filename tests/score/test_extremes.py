"""Numbers at the ends of what a float holds: each gives a defined score or one sentence, never NaN."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapr
from tapr.encoders.base import Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.query.open_reference import open_reference
from tapr.query.spec import EditSpec, Weights
from tapr.score.compile import TAU_MAX, TAU_MIN, Continuity, compile_query, weigh
from tapr.score.definition import late_interaction
from tapr.types import Float32
from tests.pictures import flag, png
from tests.refusals import refused

SPEC = EditSpec("a flag", ["red", "blue"], ["white"], ["green"])


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("scale", [1e308, 1e-300, 5e-324 * 2**40])
def test_only_ratios_matter_at_any_size(scale: float) -> None:
    """1e308 four times is more than a float holds; before, every weight was then 0."""
    usual = weigh(SPEC, True, Weights(1, 0.5, 0.5, 0.25))
    extreme = weigh(SPEC, True, Weights(scale, 0.5 * scale, 0.5 * scale, 0.25 * scale))
    assert [part.weight for part in extreme] == pytest.approx([part.weight for part in usual], rel=1e-6)
    assert sum(abs(part.weight) for part in extreme) == pytest.approx(1)


@pytest.mark.parametrize("weight", [1e308, 5e-324])
def test_only_ratios_of_atom_weights_matter(weight: float) -> None:
    extreme = EditSpec("a flag", ["red", "blue"], atom_weights={"red": weight, "blue": weight})
    assert [part.weight for part in weigh(extreme, False)] == [
        part.weight for part in weigh(EditSpec("a flag", ["red", "blue"]), False)
    ]


@pytest.mark.parametrize("weights", [Weights(1, 0.7, 0.3, 0.9), Weights(0.1, 0.5, 2.5, 0.3), Weights(3, 0, 0, 0)])
@pytest.mark.parametrize("continuity", [None, Continuity(0.4), Continuity(1.0), Continuity(0.0)])
def test_usual_weights_have_the_bits_they_had(weights: Weights, continuity: Continuity | None) -> None:
    from tapr.score.compile import shares

    plain = [
        part.weight if part.theta is None else getattr(weights, part.theta) * part.weight
        for part in shares(SPEC, True, continuity)
    ]
    total = sum(map(abs, plain))
    assert [part.weight for part in weigh(SPEC, True, weights, continuity)] == [weight / total for weight in plain]


def test_if_the_words_have_no_weight_the_picture_decides() -> None:
    parts = weigh(SPEC, True, Weights(5e-324, 0, 0, 0), Continuity(0.4, "global"))
    assert [part.weight for part in parts if part.factor == "continuity"] == [1.0]


def test_an_unused_weight_changes_nothing() -> None:
    huge = weigh(EditSpec("a flag", ["red"]), False, Weights(1e-300, 1e-300, 1, 1e308))
    assert [part.weight for part in huge] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000, math.nan, math.inf, True, "1"], ids="abcdefg")
def test_a_weight_that_is_no_number_is_refused(value: Any) -> None:
    for make in (
        lambda: Weights(target=value),
        lambda: EditSpec("a", ["b"], atom_weights={"b": value}),
        lambda: EditSpec("a", weights={"add": value}),
    ):
        with pytest.raises(BadInput, match="must be a number of 0 or more") as caught:
            make()
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [10**400, 10**5000, [[1] * 500]], ids="abc")
def test_an_invalid_reference_weight_is_refused_with_a_short_sentence(value: Any) -> None:
    with pytest.raises(BadInput) as caught:
        EditSpec("a", continuity=value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("depth", [100_000, 500])
def test_a_nested_spec_is_refused(depth: int) -> None:
    with refused("bad_spec"):
        EditSpec.from_json('{"target": ' + "[" * depth + "]" * depth + "}")


def test_the_weights_of_readings_may_have_any_size() -> None:
    largest = EditSpec("a", readings={"b": 1e308, "c": 1e308}).sentences
    assert [largest["b"], largest["c"]] == [0.5, 0.5]
    assert EditSpec("a", readings={"b": 5e-324}).sentences["a"] == 1


# tau


@pytest.mark.parametrize("tau", [5e-324, 1e-300, 1e-39, 9e-10, 1.1e9, 1e300, math.inf, math.nan, 0.0, -1.0, True])
def test_a_tau_that_no_score_can_follow_is_refused(tau: float) -> None:
    with pytest.raises(BadInput, match="tau must be from 1e-09"):
        compile_query(SPEC, None, FakeEncoder(), tau=tau)


@pytest.mark.parametrize("tau", [5e-324, 1e-310, 1e-300, 1e-39, 1e300, 1.7e308])
def test_the_definition_itself_holds_for_every_tau(tau: float) -> None:
    probe, locals_ = np.array([[1.0, 0.0]]), np.array([[0.6, 0.8], [1.0, 0.0], [-1.0, 0.0]])
    assert late_interaction(probe, locals_, tau) == pytest.approx(1.0 if tau < 1 else 0.2)


@pytest.mark.parametrize("tau", [TAU_MIN, TAU_MAX])
def test_at_the_ends_it_is_the_maximum_and_the_mean_but_for_less_than_a_float32_holds(tau: float) -> None:
    rng = np.random.default_rng(0)
    probes, locals_ = rng.standard_normal((5, 16)), rng.standard_normal((64, 16))
    probes /= np.linalg.norm(probes, axis=1, keepdims=True)
    locals_ /= np.linalg.norm(locals_, axis=1, keepdims=True)
    dots = probes @ locals_.T
    limit = (dots.max(axis=1) if tau < 1 else dots.mean(axis=1)).mean()
    assert abs(late_interaction(probes, locals_, tau) - limit) < 2.0**-24


# vectors that callers hand in


class Broken(FakeEncoder):
    """Gives one odd number."""

    def __init__(self, odd: float, where: str) -> None:
        super().__init__()
        self.odd, self.where = odd, where

    def _hurt(self, vectors: Float32, where: str) -> Float32:
        vectors = vectors.copy()
        if where == self.where and len(vectors):
            vectors[0, ..., 0] = self.odd
        return vectors

    def encode_texts(self, texts: Any) -> Float32:
        return self._hurt(super().encode_texts(texts), "texts")

    def encode_atoms(self, texts: Any) -> Float32:
        return self._hurt(super().encode_atoms(texts), "atoms")

    def encode_images(self, prepared: Any) -> Evidence:
        evidence = super().encode_images(prepared)
        return Evidence(self._hurt(evidence.global_vectors, "global"), self._hurt(evidence.local_vectors, "local"))


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    for name in ("red", "blue"):
        flag(name, "white").save(tmp_path / f"{name}.png")
    return Gallery.build(tmp_path / "bank", tmp_path, FakeEncoder())


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e30, 3e38])
@pytest.mark.parametrize("where", ["texts", "atoms", "global", "local"])
def test_an_encoder_that_gives_no_unit_vectors_is_refused(gallery: Gallery, odd: float, where: str) -> None:
    broken = Gallery.open(gallery.path, encoder=Broken(odd, where))
    with pytest.raises(BadInput, match="length"):
        tapr.search(broken, png(flag("green")), spec=SPEC)


def test_a_reference_of_another_encoder_is_refused(gallery: Gallery) -> None:
    opened = open_reference(png(flag("green")), gallery.encoder, gallery)
    other = Evidence(opened.evidence.global_vectors[:, :7], opened.evidence.local_vectors[..., :7])
    with pytest.raises(BadInput, match="has the shape 1 x 7, not M x 32"):
        tapr.search(gallery, replace(opened, evidence=other), spec=SPEC)


def test_a_compiled_query_holds_numbers_only() -> None:
    query = compile_query(SPEC, None, FakeEncoder())
    for name in ("global_probes", "global_weights", "probes", "weights"):
        odd = getattr(query, name).copy()
        odd.flat[0] = np.nan
        with pytest.raises(BadInput, match="not numbers"):
            replace(query, **{name: odd})


# galleries of hardly anything


@pytest.mark.parametrize("score", ["paper", "fixed", "adaptive"])
def test_an_empty_answer_says_why(gallery: Gallery, score: Any) -> None:
    nobody = tapr.search(gallery, png(flag("green")), spec=SPEC, where="width < 0", score=score)
    assert not nobody.hits
    assert nobody.notes[0] == "nothing was found: no picture of the gallery meets the filter 'width < 0'"
    alone = tapr.search(gallery, "red.png", spec=SPEC, where="id = 'red.png'", score=score)
    assert not alone.hits
    assert "the reference is the only picture" in alone.notes[0]
    one = tapr.search(gallery, "red.png", spec=SPEC, where="id = 'blue.png'", score=score)
    assert [hit.id for hit in one.hits] == ["blue.png"]
    assert math.isfinite(one.hits[0].score)
    assert not any("nothing was found" in note for note in one.notes)


@pytest.mark.parametrize("method", ["image", "text", "sum", "target", "maxsim", "basic", "tapr-paper"])
def test_every_method_answers_on_one_picture_and_on_none(gallery: Gallery, method: str) -> None:
    one = tapr.search(gallery, "red.png", spec=SPEC, where="id = 'blue.png'", method=method)
    assert [math.isfinite(hit.score) for hit in one.hits] == [True]
    none = tapr.search(gallery, "red.png", spec=SPEC, where="id = ''", method=method)
    assert not none.hits
    assert none.notes[0].startswith("nothing was found")


def test_half_of_a_surrogate_pair_is_no_id(gallery: Gallery) -> None:
    assert gallery.find("\ud800") is None
