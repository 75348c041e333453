"""What a run needs before it can begin: records by query, and the weights theta."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.run import Scene, grid_theta, lacking, scaled_theta
from tapr.evaluate.store import StoredRun
from tapr.evaluate.theta import FIXED, Choice, leave_one_out
from tapr.methods import RecordSet
from tapr.methods.records import Wanted
from tapr.methods.tapr import Tapr
from tapr.spec import Weights


def records_for(
    dataset: Dataset, paths: Sequence[Path], pictures: Mapping[str, str], wanted: Wanted | None = None
) -> RecordSet:
    """From record files, else what the benchmark brings itself, else none; `pictures`: name -> sha256."""
    if paths:
        benchmark = dataset.protocol.dataset, dataset.protocol.split
        return RecordSet.from_files(paths, dataset.queries, pictures, benchmark, wanted)
    if dataset.records:
        return RecordSet(dataset.records, f"written by rule with {dataset.protocol.dataset}")
    return RecordSet({}, "none")


def choose_theta(asked: str, scene: Scene, tau: float) -> tuple[Choice, list[float] | None]:
    """fixed, scaled, grid, from:RUN, leave-one-out:RUN,RUN, or four numbers; -> also the grid where one was made."""
    if asked == "fixed":
        return FIXED, None
    if asked in ("scaled", "grid") and lacking(Tapr(), scene):
        raise BadInput(f"--theta {asked} reads the queries' spec records: give --records or --factorizer")
    if asked == "scaled":
        return scaled_theta(scene, tau), None
    if asked == "grid":
        return grid_theta(scene, tau)
    kind, _, runs = asked.partition(":")
    if kind == "from":
        return _from_run(StoredRun.open(runs)), None
    if kind == "leave-one-out":
        grids = {}
        for name in runs.split(","):
            run = StoredRun.open(name)
            if "grid" not in run.metrics:
                raise BadInput(f"the run {name!r} has no grid: make it with --theta grid on a validation split")
            grids[run.config["protocol"]["dataset"]] = run.metrics["grid"]
        return leave_one_out(grids, scene.dataset.protocol.dataset), None
    return Choice(Weights.parse(asked), "given on the command line"), None


def _from_run(run: StoredRun) -> Choice:
    theta = run.config["theta"]
    protocol = run.config["protocol"]
    how = f"from a run on {protocol['dataset']} {protocol['split']}: {theta['how']}"
    return Choice(Weights.parse(theta["weights"]), how)


def file_hashes(dataset: Dataset) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dataset.annotations}
