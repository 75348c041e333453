"""Each compared system against a score worked out by hand on three pictures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.methods import METHODS, RecordSet, make_method
from tapr.methods.basic import contrastive_projection, expand, fuse, scaled
from tapr.methods.ldre import divergence, softmax_weights
from tapr.methods.stitch import transport_cost
from tapr.methods.wiser import fused
from tapr.methods.words import things
from tapr.methods.xr import ranks
from tapr.query.spec import Weights
from tests.methods import small
from tests.methods.small import Question, records, world
from tests.refusals import refused

CIREVL = {"caption": "x", "description": "y"}


def test_image_text_sum_and_target() -> None:
    given = records(spec={"target": "xz"})
    image = make_method("image").score([Question()], given, world())
    text = make_method("text").score([Question()], given, world())
    both = make_method("sum").score([Question()], given, world())
    target = make_method("target").score([Question()], given, world())
    np.testing.assert_allclose(image, [[1, 0, 0.6]], atol=1e-3)
    np.testing.assert_allclose(text, [[0, 1, 0]], atol=1e-3)
    np.testing.assert_allclose(both, [[1, 1, 0.6]], atol=1e-3)
    np.testing.assert_allclose(target, [[0.6, 0, 1]], atol=1e-3)
    weighed = make_method("target+image").score([Question()], given, world())
    np.testing.assert_allclose(weighed, [[0.6 + 0.5, 0, 1 + 0.3]], atol=1e-3)


def test_cirevl_scores_the_rewritten_caption() -> None:
    np.testing.assert_allclose(
        make_method("cirevl").score([Question()], records(cirevl=CIREVL), world()), [[0, 1, 0]], atol=1e-3
    )


def test_osrcir_scores_only_the_target() -> None:
    given = records(osrcir={"description": "x", "thoughts": "w", "reflections": "w", "target": "z"})
    np.testing.assert_allclose(make_method("osrcir").score([Question()], given, world()), [[0, 0, 0.8]], atol=1e-3)


def test_ldre_weights_captions_by_the_drop_in_similarity() -> None:
    # caption 1: x -> y, falls on a by 1 and on c by .6; caption 2: z -> z, falls nowhere
    given = records(ldre={"captions": ["x", "z"], "edited": ["y", "z"]})
    change = divergence(np.array([[1, -1, 0.6], [0, 0, 0]], np.float32))
    np.testing.assert_allclose(change, [1.6, 0])
    second = math.exp(-1 / 0.04) / (1 + math.exp(-1 / 0.04))
    np.testing.assert_allclose(softmax_weights(change), [1 - second, second], atol=1e-6)
    np.testing.assert_allclose(make_method("ldre").score([Question()], given, world()), [[0, 1, 0]], atol=1e-3)


def test_ldre_divides_by_the_largest_fall_before_the_softmax() -> None:
    weights = softmax_weights(np.array([0.2, 0.19], np.float32))
    assert weights[0] / weights[1] == pytest.approx(math.exp((1 - 0.95) / 0.04), rel=1e-3)


def test_ldre_weighs_equally_when_the_edit_changes_nothing() -> None:
    np.testing.assert_allclose(softmax_weights(np.zeros(4, np.float32)), 0.25)


def test_shared_ldre_has_one_weight_for_all_queries() -> None:
    payloads = {
        "q": {"ldre": {"captions": ["x", "z"], "edited": ["y", "z"]}},
        "r": {"ldre": {"captions": ["z", "x"], "edited": ["z", "y"]}},
    }
    questions = [Question(), replace(Question(), id="r")]
    scores = make_method("ldre-shared").score(questions, RecordSet(payloads, "hand"), world())
    # both captions fall by 1.6 in sum, so each weighs one half, in both queries
    np.testing.assert_allclose(scores, [[0, 0.5, 0.4], [0, 0.5, 0.4]], atol=1e-3)


def test_ldre_refuses_unequal_lists() -> None:
    with pytest.raises(BadInput, match="2 captions but 1 edited"):
        make_method("ldre").score([Question()], records(ldre={"captions": ["x", "y"], "edited": ["y"]}), world())


def test_pdv_moves_picture_and_caption_along_the_edit() -> None:
    # delta = y - x; (1 - .75)(x + 1.4 delta) + .75 (x + 1.2 delta) = (-.25, 1.25)
    expected = np.array([-0.25, 1.25]) / math.hypot(0.25, 1.25)
    scores = make_method("pdv-cirevl").score([Question()], records(cirevl=CIREVL), world())
    np.testing.assert_allclose(scores, [[expected[0], expected[1], 0.6 * expected[0]]], atol=1e-3)


def test_pdv_on_ldre_uses_its_own_scales() -> None:
    # one caption: weight 1; both scales 1.4, so x + 1.4 (y - x) = (-.4, 1.4)
    expected = np.array([-0.4, 1.4]) / math.hypot(0.4, 1.4)
    scores = make_method("pdv-ldre").score([Question()], records(ldre={"captions": ["x"], "edited": ["y"]}), world())
    np.testing.assert_allclose(scores, [[expected[0], expected[1], 0.6 * expected[0]]], atol=1e-3)


def test_soft_filters_the_base_score() -> None:
    given = records(cirevl={"caption": "x", "description": "xz"}, soft={"prescriptive": "z", "proscriptive": "x"})
    # a: .6 (0 + 1 - 1) / 2 = 0; c: 1 (.8 + 1 - .6) / 2 = .6
    np.testing.assert_allclose(make_method("soft").score([Question()], given, world()), [[0, 0, 0.6]], atol=1e-3)


def test_cotmr_adds_and_takes_a_quarter_of_the_means() -> None:
    given = records(cotmr={"target": "y", "existent": ["y", "x"], "nonexistent": ["z"]})
    # a: 0 + .25 * .5; b: 1 + .25 * .5; c: 0 + .25 * .3 - .25 * .8
    scores = make_method("cotmr").score([Question()], given, world())
    np.testing.assert_allclose(scores, [[0.125, 1.125, -0.125]], atol=1e-3)
    assert make_method("cotmr").ours


def test_sdr_cir_takes_its_constants_from_the_dataset() -> None:
    given = records(sdr_cir={"description": "z"})
    question = Question(edit="y")
    # CIRR: F_q = .95 z + .05 a, whose length is not 1; S_q is its cosine; S = 1.5 S_q - .5 (S_d - S_m)
    scores = make_method("sdr-cir", "CIRR").score([question], given, world())
    length = math.hypot(0.95, 0.05)
    expected = [1.5 * 0.05 / length, 0.5, 1.5 * (0.95 * 0.8 + 0.05 * 0.6) / length - 0.5 * 0.8]
    np.testing.assert_allclose(scores, [expected], atol=1e-3)
    fashion = make_method("sdr-cir", "FashionIQ").score([question], given, world())
    assert fashion[0, 0] == pytest.approx(1.4 * 0.2 / math.hypot(0.8, 0.2), abs=1e-3)
    assert make_method("sdr-cir", "my own set").ours
    assert not make_method("sdr-cir", "CIRCO").ours


def test_stitch_transports_both_ways() -> None:
    # one text, two views with cosines 1 and 0: forth the softmax takes the first (cost 0), back each view pays its own
    assert transport_cost(np.array([[[[1.0], [0.0]]]]))[0, 0] == pytest.approx((0 + 0.5) / 2, abs=1e-6)
    # two texts, one view: forth each pays its own, back the view takes the nearer
    assert transport_cost(np.array([[[[1.0]]], [[[0.0]]]]))[0, 0] == pytest.approx((0.5 + 0) / 2, abs=1e-6)


@pytest.mark.parametrize("width", [0.3, 1.9])  # of the cosines: one exponential for both directions, or one for each
def test_transport_costs_what_the_definition_says(width: float) -> None:
    dots = (np.random.default_rng(0).random((5, 3, 7, 4)) * width - width / 2).astype(np.float32)  # (K, b, V, Q)

    def spread(axis: int) -> NDArray[np.float64]:
        wide = dots.astype(np.float64)
        powers = np.exp(wide / 0.02 - (wide / 0.02).max(axis=axis, keepdims=True))
        return np.asarray((powers * wide).sum(axis=axis) / powers.sum(axis=axis))

    expected = ((1 - spread(2).mean(axis=0)) + (1 - spread(0).mean(axis=1))) / 2
    np.testing.assert_allclose(transport_cost(dots), expected, atol=2e-6)


def test_stitch_moves_descriptions_toward_the_edit() -> None:
    given = records(stitch={"descriptions": ["x"]})
    scores = make_method("stitch").score([Question(edit="y")], given, world())[0]
    text = np.array([0.55, 0.45]) / math.hypot(0.55, 0.45)
    a = text[0] * np.array([1, 1, 0])  # cosines with the views v0, l1, l2 of picture a
    forth = 1 - text[0]
    assert scores[0] == pytest.approx(-(forth + (1 - a).mean()) / 2, abs=2e-3)


def test_basic_fuses_what_is_high_by_text_and_by_picture() -> None:
    text, image = np.array([[0.0, 1.0, 0.5]], np.float32), np.array([[0.0, 1.0, 1.0]], np.float32)
    np.testing.assert_allclose(fuse(text, image), [[0, 1 - 0.1 * 4, 0.5 - 0.1 * 2.25]], atol=1e-6)
    np.testing.assert_allclose(scaled(np.array([[-0.3, 0.1]], np.float32), -0.2, -0.1), [[0, 3]], atol=1e-6)


def test_contrastive_projection_keeps_what_tells_things_apart() -> None:
    """Things vary along x and y, styles along y: with enough weight on styles only x is left."""
    wanted = np.array([[1, 0.5, 0], [-1, -0.5, 0], [1, -0.5, 0], [-1, 0.5, 0]], np.float32)
    unwanted = np.array([[0, 1, 0], [0, -1, 0]], np.float32)
    np.testing.assert_allclose(contrastive_projection(wanted, unwanted, 0.5, 250), np.diag([1, 0, 0]), atol=1e-6)
    both = contrastive_projection(wanted, unwanted, 0.0, 250)
    np.testing.assert_allclose(both, np.diag([1, 1, 0]), atol=1e-6)
    np.testing.assert_allclose(contrastive_projection(wanted, unwanted, 0.0, 1), np.diag([1, 0, 0]), atol=1e-6)


def test_an_expanded_reference_is_a_mean_of_itself_and_its_nearest() -> None:
    gallery = np.eye(3, dtype=np.float32)
    reference = np.array([[1, 0, 0]], np.float32)
    found = expand(reference, reference @ gallery.T, gallery)
    weights = np.exp(0.1 * np.array([1, 0, 0, 1]))  # its three nearest, and itself
    weights /= weights.sum()
    np.testing.assert_allclose(found, [[weights[0] + weights[3], weights[1], weights[2]]], atol=1e-6)


def test_things_are_single_names() -> None:
    """A family of the vocabulary ("dog: puppy") is several names, not one word of BASIC and FREEDOM."""
    names = things()
    assert not [name for name in names if ":" in name or "," in name]
    assert {"dog", "puppy", "graduate", "ice cream"} <= set(names)
    assert len(names) == len(set(names)) > 500


def test_basic_and_freedom_on_written_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    named = dict(zip(("x", "y", "z"), ("x", "y", "z"), strict=True))
    for module in ("basic", "freedom"):
        monkeypatch.setattr(f"tapr.methods.{module}.things", lambda: tuple(named))
    monkeypatch.setattr("tapr.methods.basic.styles", lambda: ("w", "x"))
    for one in named:
        for other in named:
            monkeypatch.setitem(small.PHRASES, f"{one} {other}", np.add(small.PHRASES[one], small.PHRASES[other]))
    asked = [Question(reference="c", edit="x")]
    for name in ("basic", "basic-expanded"):
        scores = make_method(name).score(asked, records(), world())
        assert scores.shape == (1, 3)
        assert scores[0, 0] > scores[0, 1]  # a shares something with the reference and with the text, b with neither
    # c is nearest to z, then x; a to x: the words x and z, put before the edit, mean a and c
    scores = make_method("freedom").with_constants({"neighbours": 2, "kept": 1}).score(asked, records(), world())
    assert scores[0].argmin() == 1


def test_seize_moves_the_score_by_what_the_edit_changed() -> None:
    given = records(ldre={"captions": ["x"], "edited": ["y"]})
    scores = make_method("seize").score([Question()], given, world())
    # before: 1, 0, .6; after: 0, 1, 0
    np.testing.assert_allclose(scores, [[-2.1, 1 + 0.13, -2.1 * 0.6]], atol=2e-3)


def test_maxsim_is_the_mean_of_best_local_matches() -> None:
    given = records(spec={"target": "xz", "add": ["z"], "preserve": ["x"], "remove": ["y"]})
    # a: max(.6, .8), max(0, 1), max(1, 0); b: 0; c: 1, 1, .6
    scores = make_method("maxsim").score([Question()], given, world())
    np.testing.assert_allclose(scores, [[2.8 / 3, 0, 2.6 / 3]], atol=1e-3)


def test_tapr_is_the_weighted_sum_of_its_operators() -> None:
    given = records(spec={"target": "xz", "add": ["z"], "remove": ["y"]})
    theta = Weights(1, 0.5, 0.5, 0.25)
    scores = make_method("tapr-paper", weights=theta, tau=0.001).score([Question(reference="a")], given, world())
    # at tau near 0 every probe takes its best match; continuity is the mean over the reference's two locals
    a = 0.6 + 0.5 * 1 + 0.5 * (1 + 1) / 2 - 0
    b = 0 + 0 + 0 - 0.25 * 1
    c = 1 + 0.5 * 1 + 0.5 * (0.6 + 1) / 2 - 0
    np.testing.assert_allclose(scores * 2.25, [[a, b, c]], atol=5e-3)


def test_a_method_says_which_record_it_lacks() -> None:
    with pytest.raises(BadInput, match="no cirevl record: make it with tapr factorize --for cirevl"):
        make_method("cirevl").score([Question()], records(), world())


def test_a_bad_record_is_named() -> None:
    with pytest.raises(BadInput, match="the cirevl record of query 'q' is wrong at 'description'"):
        make_method("cirevl").score([Question()], records(cirevl={"caption": "x"}), world())


def test_a_bad_spec_is_named_by_its_query() -> None:
    with pytest.raises(BadInput, match="the spec record of query 'q' cannot be used: target is empty"):
        make_method("target").score([Question()], records(spec={"target": " "}), world())


def test_unknown_names_are_refused() -> None:
    with refused("unknown_name", "'clip'"):
        make_method("clip")


def test_every_method_has_a_name_and_a_label() -> None:
    made = [make_method(name) for name in METHODS]
    assert [method.name for method in made] == list(METHODS)
    assert len({method.label for method in made}) == len(METHODS)


def test_weimocir_weighs_image_and_words_and_pictures_and_captions() -> None:
    features = replace(world(), captions={0: ("z", "w"), 1: ("x",), 2: ()})
    found = make_method("weimocir").score([Question()], records(), features)  # reference a = x, edit y
    query = np.array([0.2, 0.8]) / math.hypot(0.2, 0.8)  # along x and y
    images = np.array([query[0], query[1], 0.6 * query[0]])
    captions = np.array([0, query[0], images[2]])  # means over the captions; c has none
    np.testing.assert_allclose(found[0], 0.9 * images + 0.1 * captions, atol=1e-3)


def test_paracosm_adds_target_and_edit() -> None:
    # the target z = .6 x .8 c, the edit y: 0.3 z + 0.7 y
    target, edit = (world().texts([text]) for text in ("z", "y"))
    given = records(spec={"target": "z"})
    expected = (0.3 * target + 0.7 * edit) @ world().global_vectors.T
    np.testing.assert_allclose(make_method("paracosm").score([Question(edit="y")], given, world()), expected, atol=1e-3)


def test_xr_fuses_the_ranks_of_pictures_and_captions() -> None:
    captioned = replace(world(), captions={0: ["y"], 1: ["x"], 2: ["w"]})
    given = records(spec={"target": "x"})
    scores = make_method("xr").score([Question()], given, captioned)
    # pictures: a 1, b 0, c .6 -> ranks 1, 3, 2; captions: b first
    by_caption = ranks(np.array([[text @ world().texts(["x"])[0] for text in captioned.texts(["y", "x", "w"])]]))
    np.testing.assert_allclose(scores, 1 / (60 + np.array([[1, 3, 2]])) + 1 / (60 + by_caption), rtol=1e-6)
    np.testing.assert_array_equal(ranks(np.array([[0.5, 0.9, 0.5]], np.float32)), [[2, 1, 2]])


def test_wiser_puts_candidates_in_the_order_of_the_verifiers_confidence() -> None:
    given = records(wiser={"target": "x", "text": {"b": 0.4, "gone": 1.0}, "image": {"c": 0.4}})
    (row,) = make_method("wiser").score([Question()], given, world())
    assert list(np.argsort(-row)) == [1, 2, 0]  # b and c have 0.4, b by the text path; a was not seen
    assert fused({"p": 0.5, "q": 0.3}, {"q": 0.4, "r": 0.5}) == ["q", "p", "r"]
    with pytest.raises(BadInput):
        make_method("wiser").score([Question()], records(wiser={"target": "x", "text": {"b": 2}}), world())


def test_the_reversed_query_prefers_candidates_whose_way_back_ends_at_the_reference() -> None:
    given = records(cirevl={"caption": "x", "description": "y"})
    (row,) = make_method("reversed").score([Question(reference="a")], given, world())
    gallery, (x, y) = world().global_vectors, world().texts(["x", "y"])
    back = gallery + x - y
    back /= np.maximum(np.linalg.norm(back, axis=1, keepdims=True), 1e-9)
    expected = gallery @ y + back @ world().reference_vectors(["a"])[0]
    assert list(np.argsort(-row, kind="stable")) == list(np.argsort(-expected, kind="stable"))
    (one,) = make_method("reversed").with_constants({"first": 1}).score([Question(reference="a")], given, world())
    np.testing.assert_allclose(one, gallery @ y, atol=1e-6)  # one candidate has nothing to change places with
