"""What a run needs before it can begin: records by query, and the weights theta."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.run import Scene, grid_theta, scaled_theta
from tapr.evaluate.store import StoredRun
from tapr.evaluate.theta import FIXED, Choice, leave_one_out
from tapr.factorize.base import Reference
from tapr.images import read_bytes, sha256_of
from tapr.methods import Features, RecordSet
from tapr.methods.derive import derive
from tapr.reference import shown
from tapr.spec import EditSpec, Weights

Advance = Callable[[int], None]
_ANYTHING = "a picture"


def records_for(dataset: Dataset, path: Path | None) -> RecordSet:
    """From a record file, else what the benchmark brings itself, else none."""
    if path is not None:
        return RecordSet.from_file(path)
    if dataset.records:
        return RecordSet(dataset.records, f"written by rule with {dataset.protocol.dataset}")
    return RecordSet({}, "none")


def factorized(
    dataset: Dataset, name: str, encoder: Encoder, features: tuple[Features, ...], advance: Advance = lambda done: None
) -> RecordSet:
    """Specs made now by a factorizer, and every method's record derived from them; captions as far as it gives them."""
    from tapr.factorize.registry import load_factorizer

    factorizer = load_factorizer(name, encoder=encoder)
    payloads: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    blank = 0  # CIRR's test1 has a query without words
    for part, part_features in zip(dataset.parts, features, strict=True):
        for query in part.queries:
            if not query.edit.strip():
                payloads[query.id] = derive(EditSpec(_ANYTHING), query.edit, None)
                blank += 1
                continue
            data = read_bytes(dataset.pictures[query.reference])
            reference = Reference(shown(data), part_features.references([query.reference]), sha256_of(data))
            made = factorizer.factorize(reference, query.edit)
            payloads[query.id] = derive(made.spec, query.edit, _caption(made.details))
            advance(1)
    without = f"; {blank} queries without an edit have the target {_ANYTHING!r}" if blank else ""
    origin = f"factorizer {factorizer.name}; other methods' records derived from its specs{without}"
    return RecordSet(payloads, origin)


def choose_theta(asked: str, scene: Scene, tau: float) -> tuple[Choice, list[float] | None]:
    """fixed, scaled, grid, from:RUN, leave-one-out:RUN,RUN, or four numbers; -> also the grid where one was made."""
    if asked == "fixed":
        return FIXED, None
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


def _caption(details: Mapping[str, Any]) -> str | None:
    """What the grounded factorizer saw in the reference, as a caption; a factorizer that says nothing gives none."""
    tags = details.get("tags")
    if not isinstance(tags, Mapping) or not tags.get("subject"):
        return None
    said = [value for name, value in tags.items() if name != "subject" and isinstance(value, str)]
    return ", ".join([str(tags["subject"]), *said])


def file_hashes(dataset: Dataset) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dataset.annotations}
