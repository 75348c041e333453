import itertools

import numpy as np
import pytest

from tapr import BadInput, EditSpec, Weights
from tapr.encoders.base import Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.query.factors import BY_NAME, FACTORS
from tapr.query.scoring import ReferenceFeatures
from tapr.score import definition
from tapr.score.compile import PARTS, WHOLE, Continuity, Feedback, compile_query, weigh
from tests.pictures import flag

ENCODER = FakeEncoder()


def evidence_of(*colours: str) -> Evidence:
    return ENCODER.encode_images([ENCODER.prepare(flag(*colours))])


@pytest.mark.parametrize(
    ("add", "preserve", "remove"),
    list(itertools.product([(), ("red", "a hat")], [(), ("blue",)], [(), ("white", "green")])),
)
def test_the_compiled_form_is_the_four_operators(
    add: tuple[str, ...], preserve: tuple[str, ...], remove: tuple[str, ...]
) -> None:
    """The paper's score, written out operator by operator, for every combination of empty factors."""
    spec = EditSpec("a red and blue flag", add, preserve, remove)
    theta = Weights(1, 0.5, 0.7, 0.3)
    reference, candidate = evidence_of("red", "white", "blue"), evidence_of("blue", "green")
    v = candidate.local_vectors[0].astype(np.float64)

    def late(texts: tuple[str, ...]) -> float:
        return float(definition.late_interaction(ENCODER.encode_atoms(texts), v, 0.02))

    continuity = float(definition.late_interaction(reference.local_vectors[0], v, 0.02))
    score = theta.target * float(
        ENCODER.encode_texts([spec.target])[0].astype(np.float64) @ candidate.global_vectors[0]
    )
    total = theta.target + theta.preserve
    score += theta.preserve * (0.5 * late(preserve) + 0.5 * continuity if preserve else continuity)
    if add:
        score, total = score + theta.add * late(add), total + theta.add
    if remove:
        score, total = score - theta.remove * late(remove), total + theta.remove

    query = compile_query(spec, reference, ENCODER, theta)
    computed = definition.score(query, candidate.global_vectors, candidate.local_vectors)
    assert computed[0] == pytest.approx(score / total, abs=1e-6)


@pytest.mark.parametrize("reference_features", ["local", "global", "both"])
@pytest.mark.parametrize("reference_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("preserve", [(), ("blue", "a hat")])
def test_the_default_score_mixes_words_and_picture_by_the_reference_weight(
    preserve: tuple[str, ...], reference_weight: float, reference_features: ReferenceFeatures
) -> None:
    spec = EditSpec("a red flag", ["red"], preserve, ["white"])
    theta = Weights(1, 0.5, 0.7, 0.3)
    reference, candidate = evidence_of("red", "white", "blue"), evidence_of("blue", "green")
    v0, v = candidate.global_vectors[0].astype(np.float64), candidate.local_vectors[0].astype(np.float64)

    def late(texts: tuple[str, ...]) -> float:
        return float(definition.late_interaction(ENCODER.encode_atoms(texts), v, 0.02))

    words = float(ENCODER.encode_texts([spec.target])[0] @ v0) + 0.5 * late(("red",)) - 0.3 * late(("white",))
    words += 0.35 * late(preserve) if preserve else 0
    whole = float(reference.global_vectors[0] @ v0)
    parts = float(definition.late_interaction(reference.local_vectors[0], v, 0.02))
    picture = {"local": parts, "global": whole, "both": (whole + parts) / 2}[reference_features]
    magnitudes = (1 - reference_weight) * (1.8 + (0.35 if preserve else 0)) + reference_weight

    query = compile_query(spec, reference, ENCODER, theta, continuity=Continuity(reference_weight, reference_features))
    computed = definition.score(query, candidate.global_vectors, candidate.local_vectors)
    assert computed[0] == pytest.approx(
        ((1 - reference_weight) * words + reference_weight * picture) / magnitudes, abs=1e-6
    )
    by_kernel = (
        query.target_weight * (v0 @ query.target) + definition.probe_scores(query.probes, v, 0.02) @ query.weights
    )
    assert by_kernel == pytest.approx(computed[0], abs=1e-6)  # the whole picture folds into the target


def test_readings_are_added_to_the_target_and_the_paper_has_one() -> None:
    """The sum of the sentences' vectors by their shares; kernels still see one target."""
    spec = EditSpec("a red flag", ["red"], readings={"red": 0.5, "a blue flag": 0.5})
    reference, candidate = evidence_of("red", "white"), evidence_of("blue", "green")
    ours = compile_query(spec, reference, ENCODER, continuity=Continuity(0.0))
    alone = [
        compile_query(EditSpec(sentence, ["red"]), reference, ENCODER, continuity=Continuity(0.0))
        for sentence in ("a red flag", "red", "a blue flag")
    ]
    scores = [definition.score(one, candidate.global_vectors, candidate.local_vectors)[0] for one in (ours, *alone)]
    assert scores[0] == pytest.approx(0.5 * scores[1] + 0.25 * scores[2] + 0.25 * scores[3], abs=1e-6)
    assert [term.text for term in ours.terms if term.factor == "target"] == ["a red flag", "red", "a blue flag"]
    paper = compile_query(spec, reference, ENCODER)
    assert [term.text for term in paper.terms if term.factor == "target"] == ["a red flag"]
    without = compile_query(EditSpec("a red flag", ["red"]), reference, ENCODER)
    assert np.array_equal(paper.target, without.target)
    words = compile_query(spec, None, ENCODER)  # without a reference nothing is left to decide, and all count
    assert len([term for term in words.terms if term.factor == "target"]) == 3


def test_the_two_terms_of_the_reference_have_names_that_no_atom_takes_away() -> None:
    spec = EditSpec("a", [PARTS], [WHOLE], ["(reference)"])
    query = compile_query(spec, evidence_of("red"), ENCODER, continuity=Continuity(0.5))
    named = [(term.factor, term.text, term.reads) for term in query.terms]
    assert len(set(named)) == len(named) == 6
    assert ("continuity", WHOLE, "global") in named
    assert ("continuity", PARTS, "local") in named


def test_every_term_has_an_id_that_says_where_it_comes_from() -> None:
    spec = EditSpec("a", ["red", "blue"], ["red hat"], ["green"], readings=["b", "c"])
    part = Evidence(np.zeros((0, 32), np.float32), evidence_of("blue").local_vectors[:, :3])
    marks = [
        Feedback(factor, name, evidence_of(name))  # type: ignore[arg-type]
        for factor, name in (("preserve", "red"), ("preserve", "blue"), ("remove", "green"))
    ]
    references = [evidence_of("red"), part]
    query = compile_query(spec, references, ENCODER, continuity=Continuity(0.5), feedback=marks)
    assert {term.id: term.text for term in query.terms} == {
        "target": "a", "target:1": "b", "target:2": "c", "add:0": "red", "add:1": "blue", "preserve:0": "red hat",
        "reference:0:global": "overall look (picture 1)", "reference:0:local": "details (picture 1)",
        "reference:1:local": "selected area (picture 2)", "remove:0": "green",
        "more_like:0:global": "more like red: overall look", "more_like:0:local": "more like red: details",
        "more_like:1:global": "more like blue: overall look", "more_like:1:local": "more like blue: details",
        "not_like:0:global": "not like green: overall look", "not_like:0:local": "not like green: details",
    }  # fmt: skip
    paper = compile_query(spec, references[:1], ENCODER)
    assert [term.id for term in paper.terms if term.factor in ("target", "continuity")] == [
        "target",
        "reference:0:local",
    ]


def test_the_reference_weight_is_a_number_from_0_to_1() -> None:
    for reference_weight in (-0.1, 1.1, float("nan"), True, "half"):
        with pytest.raises(BadInput, match="from 0"):
            Continuity(reference_weight)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="from 0"):
            EditSpec("a", continuity=reference_weight)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="local, global, both"):
        Continuity(0.5, "sideways")  # type: ignore[arg-type]


def test_magnitudes_sum_to_one_and_remove_is_negative() -> None:
    query = compile_query(EditSpec("a", ["red"], [], ["blue", "green"]), evidence_of("red"), ENCODER)
    assert np.abs(query.global_weights).sum() + np.abs(query.weights).sum() == pytest.approx(1, abs=1e-6)
    signs = {term.text: np.sign(query.weights[term.start]) for term in query.terms[1:]}
    assert signs == {"red": 1, PARTS: 1, "blue": -1, "green": -1}


def test_an_atoms_weight_shares_its_factor_out() -> None:
    spec = EditSpec("a", ["red", "blue"], atom_weights={"red": 3})
    query = compile_query(spec, None, ENCODER, Weights(1, 1, 1, 1))
    assert query.weights.tolist() == pytest.approx([0.375, 0.125])


def test_a_weight_of_zero_keeps_its_term_at_nothing() -> None:
    query = compile_query(EditSpec("a", ["red"]), evidence_of("red"), ENCODER, Weights(1, 0, 0, 0))
    assert query.target_weight == 1
    assert not query.weights.any()


def test_without_a_reference_there_is_no_continuity() -> None:
    assert [term.text for term in compile_query(EditSpec("a", preserve=["red"]), None, ENCODER).terms] == ["a", "red"]
    assert compile_query(EditSpec("a"), None, ENCODER).probes.shape == (0, 32)


def test_keep_drops_terms_and_their_probes() -> None:
    query = compile_query(EditSpec("a", ["red"], ["blue"], ["green"]), evidence_of("red"), ENCODER)
    kept = query.keep(lambda term: term.text in (PARTS, "green"))
    assert not kept.target.any()
    assert [term.text for term in kept.terms] == [PARTS, "green"]
    assert kept.probes.shape == (10, 32)
    assert kept.weights[-1] == query.weights[-1]


def test_mistakes_are_said() -> None:
    with pytest.raises(BadInput, match="tau"):
        compile_query(EditSpec("a"), None, ENCODER, tau=0)
    with pytest.raises(BadInput, match="weight 0"):
        compile_query(EditSpec("a"), None, ENCODER, Weights(0, 1, 1, 1))
    with pytest.raises(BadInput, match="every atom of add"):
        compile_query(EditSpec("a", ["b"], atom_weights={"b": 0}), None, ENCODER)


@pytest.mark.parametrize("continuity", [None, Continuity(0.4)])
def test_terms_read_and_count_as_the_table_of_factors_says(continuity: Continuity | None) -> None:
    parts = weigh(EditSpec("a", ["red"], ["blue"], ["green"]), True, None, continuity)
    assert {part.factor for part in parts} == {row.name for row in FACTORS}
    for part in parts:
        assert part.reads in BY_NAME[part.factor].reads
        assert np.sign(part.weight) == BY_NAME[part.factor].sign
        assert (part.factor == "continuity") != BY_NAME[part.factor].from_words
