"""Chooses every method's constants by one rule: the best of its settings by the main metric on a development split.

A method names its constants and the values to try, 125 combinations at most. All are tried on the same queries with the
same records. Equal figures keep the published constants. The split that is reported on has no say: it takes the choice
of another split, or of other datasets together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapr.errors import BadInput
from tapr.evaluate.fallback import fallback_scores, scores, unanswerable
from tapr.evaluate.metrics import AnswerRanks
from tapr.evaluate.run import Experiment
from tapr.evaluate.run_files import TUNED, StoredRun
from tapr.evaluate.terms import QueryTerms, query_terms
from tapr.evaluate.theta import check_tunable, operators
from tapr.methods import Method
from tapr.methods.tapr import Tapr
from tapr.query.spec import DEFAULT_WEIGHTS
from tapr.score.compile import Continuity

_QUERIES = 512  # scored at a time

Tried = dict[str, Any]  # JSON-ready: {"settings": [{constant: value}], "values": [percent]}


def try_settings(method: Method, experiment: Experiment) -> Tried:
    """The main metric of every setting of a method, on a split that may be tuned on."""
    check_tunable(experiment.dataset.protocol)
    settings = method.settings()
    if isinstance(method, Tapr) and not experiment.composed:
        values = _by_terms(method, settings, experiment)
    else:
        values = _by_scores(method, settings, experiment)
    return {"settings": settings, "values": [float(value) for value in 100 * values]}


def _by_scores(method: Method, settings: Sequence[Mapping[str, Any]], experiment: Experiment) -> Any:
    """(settings,)"""
    protocol, shares = experiment.dataset.protocol, _shares(experiment)
    values = np.zeros(len(settings))
    lost = [unanswerable(method, part.queries, experiment.records) for part in experiment.dataset.parts]
    for number, setting in enumerate(settings):
        changed = method.with_constants(setting)
        for without, (first, part, features, truths) in zip(lost, experiment.parts(), strict=True):
            step = len(part.queries) if method.whole else _QUERIES
            for start in range(0, len(part.queries), step):
                found = scores(changed, part.queries[start : start + step], experiment.records, features, without)
                for place, row in enumerate(found, start):
                    (ranks,) = truths[place].ranks(row[None])
                    values[number] += shares[first + place] * protocol.main.value(ranks)
    return values


def _by_terms(method: Tapr, settings: Sequence[Mapping[str, Any]], experiment: Experiment) -> Any:
    """Return what _by_scores does from one pass over the bank: TAPR's score is linear in its terms."""
    protocol, shares = experiment.dataset.protocol, _shares(experiment)
    made = [method.with_constants(setting) for setting in settings]
    by_weight: dict[float | None, list[int]] = {}  # reference weight -> numbers of settings
    for number, one in enumerate(made):
        by_weight.setdefault(one.scoring.reference_weight, []).append(number)
    values = np.zeros(len(settings))
    for first, part, features, truths in experiment.parts():
        without = unanswerable(method, part.queries, experiment.records)
        asked = [place for place, query in enumerate(part.queries) if query.id not in without]
        queries = [part.queries[place] for place in asked]
        for order, terms in query_terms(queries, experiment.records, features, (method.tau,), method.scoring):
            place = asked[order]
            for weight, numbers in by_weight.items():
                phi = operators(_with_reference_weight(terms, weight), method.tau)
                theta = np.array([[*(made[n].weights or DEFAULT_WEIGHTS).as_dict().values(), 1.0] for n in numbers])
                found = truths[place].ranks_by_weights(theta, phi)
                values[numbers] += shares[first + place] * np.array([protocol.main.value(ranks) for ranks in found])
        for place, query in enumerate(part.queries):
            if query.id in without:  # whatever the constants
                (ranks,) = truths[place].ranks(fallback_scores([query], features))
                values += shares[first + place] * protocol.main.value(ranks)
    return values


def _with_reference_weight(terms: QueryTerms, weight: float | None) -> QueryTerms:
    if weight is None or terms.continuity is None:
        return terms
    continuity = Continuity(weight, terms.continuity.reference_features)
    return QueryTerms(terms.spec, terms.keys, terms.rows, continuity)


def _shares(experiment: Experiment) -> Any:
    """(Q,) each query's part of the mean"""
    return experiment.outcome([(AnswerRanks((1.0,)),)] * len(experiment.dataset.queries)).shares()


@dataclass(frozen=True)
class Tuned:
    """The constants of each method, and on what they were chosen."""

    constants: Mapping[str, Mapping[str, Any]]  # method -> constant -> value
    how: str

    def methods(self, made: Mapping[str, Method]) -> dict[str, Method]:
        """Each method, and after it the same with its chosen constants where it has constants."""
        both: dict[str, Method] = {}
        for name, method in made.items():
            both[name] = method
            values = self.constants.get(name)
            if values:
                tuned = method.with_constants(values)
                tuned.name, tuned.label = f"{name}{TUNED}", f"{method.label}, tuned"
                said = ", ".join(f"{key} {_shown(value)}" for key, value in values.items())
                tuned.ours = "; ".join(part for part in (method.ours, f"constants {self.how}: {said}") if part)
                both[tuned.name] = tuned
        return both

    def to_dict(self) -> dict[str, Any]:
        return {"constants": {name: dict(values) for name, values in self.constants.items()}, "how": self.how}


def choose(runs: Sequence[StoredRun], dataset: str, split: str) -> Tuned:
    """The best setting on all runs together, each divided by its own best; a run on this very split has no vote."""
    voting = [
        run for run in runs if (run.config["protocol"]["dataset"], run.config["protocol"]["split"]) != (dataset, split)
    ]
    if not voting:
        raise BadInput(f"constants are never chosen on {dataset} {split} itself: name runs of other splits with --tune")
    tried: dict[str, list[Tried]] = {}
    for run in voting:
        found = run.metrics.get("tuning")
        if found is None:
            raise BadInput(f"the run {str(run.folder)!r} tried no settings: make it with --tune on a validation split")
        for name, one in found.items():
            tried.setdefault(name, []).append(one)
    constants = {name: _best(name, found) for name, found in tried.items() if found[0]["settings"][0]}
    where = " and ".join(f"{run.config['protocol']['dataset']} {run.config['protocol']['split']}" for run in voting)
    return Tuned(constants, f"chosen on {where} by {voting[0].main}")


def _best(name: str, tried: Sequence[Tried]) -> dict[str, Any]:
    # the first setting is a dataset's own published one, which differs between datasets: what all have tried counts
    common = [one for one in tried[0]["settings"] if all(one in other["settings"] for other in tried)]
    if not common:
        raise BadInput(f"the runs tried other settings of the method {name!r}: make them with the same tapr")
    relative = [
        [found["values"][found["settings"].index(one)] / max(*found["values"], 1e-9) for one in common]
        for found in tried
    ]
    best: dict[str, Any] = common[int(np.argmax(np.mean(relative, axis=0)))]
    return best


def _shown(value: Any) -> str:
    return "by the rule" if value is None else f"{value:g}"
