"""Prepares a run: the records of its queries, and the factor weights theta."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.coverage import WHOLE
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.run import Experiment, grid_theta, missing_records, scaled_theta
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.theta import FIXED, GRID, Choice, joint, leave_one_out
from tapr.methods import RecordSet
from tapr.methods.records import RecordFilter
from tapr.methods.tapr import Tapr
from tapr.query.spec import Weights

_WEIGHED_WITH = ("name", "weights_sha256", "extractor", "fit", "template")  # of an encoder's card


def records_for(
    dataset: Dataset, paths: Sequence[Path], pictures: Mapping[str, str], wanted: RecordFilter | None = None
) -> RecordSet:
    """Records from files; or else those that come with the benchmark; or else none. `pictures`: name -> sha256."""
    if paths:
        benchmark = dataset.protocol.dataset, dataset.protocol.split
        return RecordSet.from_files(paths, dataset.queries, pictures, benchmark, wanted)
    if dataset.records:
        return RecordSet(dataset.records, f"written by rule with {dataset.protocol.dataset}")
    return RecordSet({}, "none")


def choose_theta(
    asked: str, experiment: Experiment, tau: float, coverage: float = WHOLE
) -> tuple[Choice, list[float] | None]:
    """Choose theta as --theta says, and return the grid where one was made.

    `coverage`: share of the queries that must have a spec.
    """
    if asked == "fixed":
        return FIXED, None
    if asked in ("scaled", "grid"):
        reason = missing_records(Tapr(), experiment, coverage)
        if reason:
            raise BadInput(f"--theta {asked} reads the queries' spec records (--records or --factorizer), but {reason}")
    if asked == "scaled":
        return scaled_theta(experiment, tau), None
    if asked == "grid":
        return grid_theta(experiment, tau)
    return _of_runs(asked, experiment, tau), None


def _of_runs(asked: str, experiment: Experiment, tau: float) -> Choice:
    """from:RUN, joint:RUN,RUN, leave-one-out:RUN,RUN, or four numbers."""
    kind, _, runs = asked.partition(":")
    if kind not in ("from", "joint", "leave-one-out"):
        return Choice(Weights.parse(asked), "given on the command line")
    opened = {name: StoredRun.open(name) for name in ([runs] if kind == "from" else runs.split(","))}
    for name, run in opened.items():
        refuse_another_score(name, run, experiment, tau)
    if kind == "from":
        return _from_run(opened[runs])
    grids = _grids(opened)
    return joint(grids) if kind == "joint" else leave_one_out(grids, experiment.dataset.protocol.dataset)


def refuse_another_score(name: str, run: StoredRun, experiment: Experiment, tau: float) -> None:
    """Weights and constants belong to the score and the vectors that they were chosen with."""
    card, config = experiment.features[0].encoder.card.to_dict(), run.config
    own = {field: card[field] for field in _WEIGHED_WITH} | {"tau": tau, "score": experiment.scoring.to_dict()}
    theirs = {field: config["encoder"].get(field) for field in _WEIGHED_WITH}
    theirs |= {"tau": config["tau"], "score": config.get("score")}
    for field, value in own.items():
        if theirs[field] != value:
            raise BadInput(
                f"the weights of the run {name!r} were chosen with {field.replace('_', ' ')} {theirs[field]}, and this "
                f"run has {value}: choose them with the same options"
            )


def _grids(runs: Mapping[str, StoredRun]) -> dict[str, list[float]]:
    """dataset -> the main metric at every grid point."""
    grids: dict[str, list[float]] = {}
    for name, run in runs.items():
        dataset = run.config["protocol"]["dataset"]
        if "grid" not in run.metrics:
            raise BadInput(f"the run {name!r} has no grid: make it with --theta grid on a validation split")
        if dataset in grids:
            raise BadInput(f"two of the runs are on {dataset}: name one for each dataset")
        if len(run.metrics["grid"]) != len(GRID):
            raise BadInput(f"the grid of the run {name!r} has other points than this tapr's: run it again")
        grids[dataset] = run.metrics["grid"]
    return grids


def _from_run(run: StoredRun) -> Choice:
    theta = run.config["theta"]
    protocol = run.protocol
    how = f"from a run on {protocol['dataset']} {protocol['split']}: {theta['how']}"
    return Choice(Weights.parse(theta["weights"]), how)


def file_hashes(dataset: Dataset) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dataset.annotations}
