"""Submission files for the benchmarks' servers, checked before they are written; and reading them back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, read_json
from tapr.evaluate.datasets.circo import picture_name
from tapr.evaluate.metrics import Outcome, places_in_list
from tapr.evaluate.run import MethodResult
from tapr.evaluate.store import write_json

CIRCO_LENGTH, CIRR_LENGTH, CIRR_SUBSET_LENGTH = 50, 50, 3
_VERSION = "rc2"
_CIRR_KEYS = ("version", "metric")


def submissions(result: MethodResult, dataset: Dataset) -> dict[str, dict[str, Any]]:
    """File name -> content; empty for benchmarks without a server."""
    name, split = dataset.protocol.dataset, dataset.protocol.split
    if name == "CIRCO":
        content: dict[str, Any] = {
            query_id: [int(picture) for picture in top[:CIRCO_LENGTH]] for query_id, top in result.top.items()
        }
        return {f"circo_{split}_{result.name}.json": content}
    if name == "CIRR":
        recall = {query_id: top[:CIRR_LENGTH] for query_id, top in result.top.items()}
        subset = {query_id: top[:CIRR_SUBSET_LENGTH] for query_id, top in result.subset.items()}
        return {
            f"cirr_{split}_{result.name}_recall.json": {"version": _VERSION, "metric": "recall", **recall},
            f"cirr_{split}_{result.name}_subset.json": {"version": _VERSION, "metric": "recall_subset", **subset},
        }
    return {}


def write_submissions(result: MethodResult, dataset: Dataset, folder: Path) -> list[Path]:
    written = []
    for name, content in submissions(result, dataset).items():
        validate(content, dataset)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, content)
        written.append(folder / name)
    return written


def validate(content: Mapping[str, Any], dataset: Dataset, whole: bool = True) -> dict[str, list[str]]:
    """Query id -> names, or what is wrong: queries, lengths, names, repeats; `whole` asks for full-length lists."""
    cirr = dataset.protocol.dataset == "CIRR"
    subset = content.get("metric") == "recall_subset"
    if cirr and (content.get("version") != _VERSION or content.get("metric") not in ("recall", "recall_subset")):
        raise BadInput('a CIRR submission says "version": "rc2" and "metric": "recall" or "recall_subset"')
    lists = {key: value for key, value in content.items() if key not in _CIRR_KEYS} if cirr else dict(content)
    queries = {query.id: query for query in dataset.queries}
    _same_queries(lists, queries)
    length = CIRR_SUBSET_LENGTH if subset else CIRR_LENGTH
    galleries = {
        query.id: ranked for part in dataset.parts for ranked in (set(part.gallery),) for query in part.queries
    }
    read = {}
    for query_id, value in lists.items():
        names = _names(value, query_id, dataset)
        if whole and len(names) != length:
            raise BadInput(f"query {query_id} has {len(names)} answers, not {length}")
        if len(set(names)) != len(names):
            raise BadInput(f"query {query_id} names a picture twice")
        if cirr and queries[query_id].reference in names:
            raise BadInput(f"query {query_id} names its own reference, which CIRR removes")
        allowed = set(queries[query_id].subset) if subset else galleries[query_id]
        # CIRCO's gallery is known only where its pictures are
        stranger = None if _is_circo(dataset) else next((name for name in names if name not in allowed), None)
        if stranger is not None:
            raise BadInput(
                f"query {query_id} names {stranger!r}, which is not in its {'subset' if subset else 'gallery'}"
            )
        read[query_id] = names
    return read


def score_predictions(path: Path, dataset: Dataset, subset_path: Path | None = None) -> Outcome:
    """The places of an existing prediction file in the submission format; `subset_path` is CIRR's second file."""
    if dataset.protocol.hidden:
        raise BadInput(
            f"the answers of {dataset.protocol.dataset} {dataset.protocol.split} are on its server, not here"
        )
    content = _content(path)
    if dataset.protocol.dataset == "CIRR" and content.get("metric") == "recall_subset":
        raise BadInput(f"{path} holds subset rankings: give it with --subset-predictions")
    lists = _checked(path, content, dataset)
    inside = _checked(subset_path, _content(subset_path), dataset) if subset_path else None
    places = []
    for query in dataset.queries:
        subset = None if inside is None else inside[query.id]
        names = lists[query.id]
        if not dataset.protocol.keep_reference:
            names = [name for name in names if name != query.reference]
        places.append((places_in_list(names, query.right, subset),))
    queries = dataset.queries
    return Outcome(
        tuple(query.id for query in queries),
        tuple(places),
        tuple(query.groups for query in queries),
        dataset.protocol.macro,
    )


def _content(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise BadInput(f"{path} must hold one object: query id -> list of answers")
    return content


def _checked(path: Path, content: dict[str, Any], dataset: Dataset) -> dict[str, list[str]]:
    try:
        return validate(content, dataset, whole=False)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _same_queries(lists: Mapping[str, Any], queries: Mapping[str, Any]) -> None:
    missing, extra = queries.keys() - lists.keys(), lists.keys() - queries.keys()
    if missing:
        raise BadInput(f"{len(missing)} queries have no answer, such as {min(missing)}")
    if extra:
        raise BadInput(f"{len(extra)} answers belong to no query of this split, such as {min(extra)}")


def _names(value: Any, query_id: str, dataset: Dataset) -> list[str]:
    """The pictures of a list. CIRCO's server wants numbers, CIRR's wants names; your own pictures may be called 12."""
    circo, cirr = _is_circo(dataset), dataset.protocol.dataset == "CIRR"
    kinds, wanted = ((int,), "numbers") if circo else ((str,), "names") if cirr else ((str, int), "names")
    if not isinstance(value, list) or not all(isinstance(item, kinds) and not isinstance(item, bool) for item in value):
        raise BadInput(f"query {query_id} must have a list of {wanted}")
    return [picture_name(item) if circo else str(item) for item in value]


def _is_circo(dataset: Dataset) -> bool:
    return dataset.protocol.dataset == "CIRCO"
