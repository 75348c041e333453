"""Prepares a run: the records of its queries, and the factor weights theta."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.run import Experiment, grid_theta, missing_records, scaled_theta
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.theta import FIXED, GRID, Choice, joint, leave_one_out
from tapr.methods import RecordSet
from tapr.methods.records import RecordFilter
from tapr.methods.tapr import Tapr
from tapr.query.spec import Weights


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


def choose_theta(asked: str, experiment: Experiment, tau: float) -> tuple[Choice, list[float] | None]:
    """The weights as --theta asks for, and the metric at every grid point if a grid was computed."""
    if asked == "fixed":
        return FIXED, None
    if asked in ("scaled", "grid") and missing_records(Tapr(), experiment):
        raise BadInput(f"--theta {asked} reads the queries' spec records: give --records or --factorizer")
    if asked == "scaled":
        return scaled_theta(experiment, tau), None
    if asked == "grid":
        return grid_theta(experiment, tau)
    return _of_runs(asked, experiment.dataset.protocol.dataset), None


def _of_runs(asked: str, dataset: str) -> Choice:
    """Parses from:RUN, joint:RUN,RUN, leave-one-out:RUN,RUN, or four numbers."""
    kind, _, runs = asked.partition(":")
    if kind == "from":
        return _from_run(StoredRun.open(runs))
    if kind == "leave-one-out":
        return leave_one_out(_grids(runs), dataset)
    if kind == "joint":
        return joint(_grids(runs))
    return Choice(Weights.parse(asked), "given on the command line")


def _grids(runs: str) -> dict[str, list[float]]:
    """Dataset -> the main metric at every grid point, from a comma-separated list of runs."""
    grids: dict[str, list[float]] = {}
    scores = set()
    for name in runs.split(","):
        run = StoredRun.open(name)
        dataset = run.dataset
        if "grid" not in run.metrics:
            raise BadInput(f"the run {name!r} has no grid: make it with --theta grid on a validation split")
        if dataset in grids:
            raise BadInput(f"two of the runs are on {dataset}: name one for each dataset")
        if len(run.metrics["grid"]) != len(GRID):
            raise BadInput(f"the grid of the run {name!r} has other points than this tapr's: run it again")
        scores.add(json.dumps([run.encoder, run.config["tau"], run.config["score"]], sort_keys=True))
        grids[dataset] = run.metrics["grid"]
    if len(scores) > 1:
        raise BadInput("the grids are of different encoders, taus or scores: make them with the same options")
    return grids


def _from_run(run: StoredRun) -> Choice:
    theta = run.config["theta"]
    protocol = run.protocol
    how = f"from a run on {protocol['dataset']} {protocol['split']}: {theta['how']}"
    return Choice(Weights.parse(theta["weights"]), how)


def file_hashes(dataset: Dataset) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dataset.annotations}
