"""One query without a usable record costs that query, in every method and every control, and it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tapr.evaluate.controls import variants
from tapr.evaluate.datasets.base import Part
from tapr.evaluate.fallback import BLANK, blank_note, fallback_notes
from tapr.evaluate.metrics import Metric
from tapr.evaluate.run import Experiment, grid, missing_records, run_method, run_variants, scaled_theta
from tapr.evaluate.theta import FIXED, GRID
from tapr.methods import RecordSet, make_method
from tests.evaluate.scenes import SPECS, random_scene


def scene_with(records: dict[str, dict[str, Any]]) -> Experiment:
    return replace(random_scene(), records=RecordSet(records, "made up"))


def ldre(count: int, edited: int | None = None) -> dict[str, Any]:
    lists = {"captions": [f"seen {i}" for i in range(count)], "edited": [f"wanted {i}" for i in range(edited or count)]}
    return {"ldre": lists}


IDS = [query.id for query in random_scene().dataset.queries]
WHOLE = {query_id: ldre(3) for query_id in IDS}


@pytest.mark.parametrize("broken", [ldre(3, 2), {}, {"ldre": {"captions": []}}])
@pytest.mark.parametrize("method", ["ldre", "ldre-shared", "pdv-ldre"])
def test_a_bad_or_missing_record_affects_only_its_query(method: str, broken: dict[str, Any]) -> None:
    repaired = run_method(make_method(method), scene_with({**WHOLE, "q2": broken}))
    assert list(repaired.without) == ["q2"]
    text = run_method(make_method("text"), random_scene())
    assert repaired.top["q2"] == text.top["q2"]
    # the others are ranked as if the broken query were not there
    left = scene_with(WHOLE)
    (part,) = left.dataset.parts
    queries = tuple(query for query in part.queries if query.id != "q2")
    alone = replace(left, dataset=replace(left.dataset, parts=(Part(part.name, part.gallery, queries),)))
    others = run_method(make_method(method), alone)
    assert others.without == {}
    assert {query_id: top for query_id, top in repaired.top.items() if query_id != "q2"} == others.top


def test_shared_weights_leave_out_the_query_with_another_number_of_captions() -> None:
    experiment = scene_with({**WHOLE, "q1": ldre(2)})
    assert list(run_method(make_method("ldre-shared"), experiment).without) == ["q1"]
    assert run_method(make_method("ldre"), experiment).without == {}


def test_a_method_whose_records_are_all_missing_is_not_run() -> None:
    assert "query 'q0' has no cirevl record" in missing_records(make_method("cirevl"), scene_with(WHOLE))
    assert missing_records(make_method("ldre"), scene_with({"q3": ldre(2)}), needed=0) == ""
    assert missing_records(make_method("image"), scene_with({})) == ""


def without_spec_of(place: int) -> Experiment:
    specs = {query_id: {"spec": spec} for query_id, spec in zip(IDS, SPECS, strict=True)}
    del specs[IDS[place]]
    return scene_with(specs)


def test_controls_and_grid_rank_a_query_without_a_spec_as_the_method_does() -> None:
    experiment = without_spec_of(0)
    method = run_method(make_method("tapr", scoring=experiment.scoring), experiment)
    assert method.outcome is not None
    controls = run_variants(variants(["matched", "factors", "reference"]), experiment, FIXED)
    assert controls[0].outcome.ranks == method.outcome.ranks
    kept = {"reference kept"}
    assert {control.outcome.ranks[0] for control in controls if control.name not in kept} == {method.outcome.ranks[0]}
    metric = experiment.dataset.protocol.main
    assert metric == Metric("mAP", 10)
    assert grid(experiment)[GRID.index(FIXED.weights)] == pytest.approx(100 * method.outcome.mean(metric))


def test_a_query_without_a_spec_does_not_enter_the_spreads() -> None:
    experiment = without_spec_of(0)
    (part,) = experiment.dataset.parts
    rest = replace(experiment.dataset, parts=(replace(part, queries=part.queries[1:]),))
    assert scaled_theta(experiment).weights == scaled_theta(replace(experiment, dataset=rest)).weights


@pytest.mark.parametrize("method", ["tapr", "text", "sum", "basic", "ldre"])
def test_a_blank_edit_is_ranked_by_the_reference_alone(method: str) -> None:
    specs = {query_id: {"spec": spec, **ldre(2)} for query_id, spec in zip(IDS[1:], SPECS[1:], strict=True)}
    experiment = scene_with(specs)
    (part,) = experiment.dataset.parts
    blank = replace(part.queries[0], edit=" ")
    experiment = replace(
        experiment, dataset=replace(experiment.dataset, parts=(replace(part, queries=(blank, *part.queries[1:])),))
    )
    result = run_method(make_method(method), experiment)
    assert result.without == {"q0": BLANK}
    assert result.top["q0"] == run_method(make_method("image"), random_scene()).top["q0"]
    (note,) = blank_note(experiment.dataset)
    assert note.startswith("the edit of 1 query is blank (q0)")
    assert fallback_notes({"TAPR": result.without}, 5) == []


def test_a_blank_edit_that_has_a_record_is_scored_by_it() -> None:
    experiment = random_scene()
    (part,) = experiment.dataset.parts
    blank = tuple(replace(query, edit="") for query in part.queries)
    silent = replace(experiment, dataset=replace(experiment.dataset, parts=(replace(part, queries=blank),)))
    result = run_method(make_method("tapr"), silent)
    assert result.without == {}
    assert result.top == run_method(make_method("tapr"), experiment).top


def test_the_fallback_note_counts_and_names_queries() -> None:
    reasons = {f"q{number}": f"query q{number} has no x record" for number in range(7)}
    without = {"LDRE": {**reasons, "q9": BLANK}, "TAPR": {}, "LDRE + PDV-F": reasons}
    (said,) = fallback_notes(without, 4181)  # methods that lack the same queries share a sentence
    assert said.startswith(
        "LDRE; LDRE + PDV-F: 7 of 4,181 queries (q0, q1, q2, q3, q4 and 2 more) are ranked by the edit alone"
    )
    assert said.endswith("query q0 has no x record")
