"""What a run needs before it can begin: records by query, and the weights theta."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.fallback import is_blank
from tapr.evaluate.run import Scene, grid_theta, lacking, scaled_theta
from tapr.evaluate.store import StoredRun
from tapr.evaluate.theta import FIXED, Choice, leave_one_out
from tapr.factorize.base import Reference
from tapr.factorize.failures import FactorizeFailed, ServerRefused, ServerUnreachable
from tapr.factorize.records import SPEC
from tapr.images import read_bytes, sha256_of
from tapr.methods import Features, RecordSet
from tapr.methods.derive import derive
from tapr.methods.kinds import SCHEMAS
from tapr.methods.tapr import Tapr
from tapr.reference import shown
from tapr.spec import Weights

Advance = Callable[[int], None]


def records_for(dataset: Dataset, path: Path | None, pictures: Mapping[str, str]) -> RecordSet:
    """From a record file, else what the benchmark brings itself, else none; `pictures`: name -> sha256."""
    if path is not None:
        return RecordSet.from_file(path, dataset.queries, pictures)
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
    failures: dict[str, Mapping[str, str]] = {}
    for part, part_features in zip(dataset.parts, features, strict=True):
        for query in part.queries:
            if is_blank(query):
                continue  # there is nothing to factorize
            try:
                data = read_bytes(dataset.pictures[query.reference])
                reference = Reference(shown(data), part_features.references([query.reference]), sha256_of(data))
                made = factorizer.factorize(reference, query.edit)
                payloads[query.id] = derive(made.spec, query.edit, _caption(made.details))
            except (ServerRefused, ServerUnreachable):
                raise  # the next query would fare no better
            except (BadInput, FactorizeFailed) as error:
                failures[query.id] = dict.fromkeys((SPEC, *SCHEMAS), str(error))
            advance(1)
    origin = f"factorizer {factorizer.name}; other methods' records derived from its specs"
    return RecordSet(payloads, origin, failures)


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


def _caption(details: Mapping[str, Any]) -> str | None:
    """What the grounded factorizer saw in the reference, as a caption; a factorizer that says nothing gives none."""
    caption = details.get("caption")
    if isinstance(caption, Mapping) and caption.get("text"):
        return str(caption["text"])
    tags = details.get("tags")
    if not isinstance(tags, Mapping) or not tags.get("subject"):
        return None
    said = [value for name, value in tags.items() if name != "subject" and isinstance(value, str)]
    return ", ".join([str(tags["subject"]), *said])


def file_hashes(dataset: Dataset) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dataset.annotations}
