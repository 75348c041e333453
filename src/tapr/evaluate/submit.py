"""Writes submission files for the benchmarks' servers after checking them, and reads them back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, read_json
from tapr.evaluate.datasets.submission import LISTS, Submission
from tapr.evaluate.metrics import Outcome, ranks_in_list
from tapr.evaluate.run import MethodResult
from tapr.evaluate.run_files import write_json


def submissions(result: MethodResult, dataset: Dataset) -> dict[str, dict[str, Any]]:
    """File name -> content; empty if the benchmark has no server."""
    wanted = dataset.submission
    if wanted is None:
        return {}
    made = {}
    for file in wanted.files:
        ranked = result.subset if file.ranks == "subset" else result.top
        lists = {query_id: [wanted.write(name) for name in top[: file.length]] for query_id, top in ranked.items()}
        made[file.name.format(split=dataset.protocol.split, method=result.name)] = {**file.head, **lists}
    return made


def write_submissions(result: MethodResult, dataset: Dataset, folder: Path) -> list[Path]:
    written = []
    for name, content in submissions(result, dataset).items():
        validate(content, dataset)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, content)
        written.append(folder / name)
    return written


def validate(content: Mapping[str, Any], dataset: Dataset, whole: bool = True) -> dict[str, list[str]]:
    """Check queries, list lengths, names and repeats; query id -> names. `whole`: lists must have full length."""
    wanted = dataset.submission or LISTS
    file = wanted.file_of(content)
    if file is None:
        raise BadInput(wanted.head_rule)
    lists = {key: value for key, value in content.items() if key not in wanted.head_keys}
    queries = {query.id: query for query in dataset.queries}
    _same_queries(lists, queries)
    galleries = {
        query.id: ranked for part in dataset.parts for ranked in (set(part.gallery),) for query in part.queries
    }
    read = {}
    for query_id, value in lists.items():
        names = _names(value, query_id, wanted)
        if whole and len(names) != file.length:
            raise BadInput(f"query {query_id} has {len(names)} answers, not {file.length}")
        if len(set(names)) != len(names):
            raise BadInput(f"query {query_id} names a picture twice")
        if not wanted.names_reference and queries[query_id].reference in names:
            raise BadInput(f"query {query_id} names its own reference, which {dataset.protocol.dataset} removes")
        allowed = set(queries[query_id].subset) if file.ranks == "subset" else galleries[query_id]
        stranger = next((name for name in names if name not in allowed), None) if wanted.knows_gallery else None
        if stranger is not None:
            raise BadInput(f"query {query_id} names {stranger!r}, which is not in its {file.ranks}")
        read[query_id] = names
    return read


def score_predictions(path: Path, dataset: Dataset, subset_path: Path | None = None) -> Outcome:
    """The ranks of an existing prediction file in submission format. `subset_path` is CIRR's second file."""
    if dataset.protocol.hidden:
        raise BadInput(
            f"the answers of {dataset.protocol.dataset} {dataset.protocol.split} are on its server, not here"
        )
    content = _content(path)
    file = (dataset.submission or LISTS).file_of(content)
    if file is not None and file.ranks == "subset":
        raise BadInput(f"{path} holds subset rankings: give it with --subset-predictions")
    lists = _checked(path, content, dataset)
    inside = _checked(subset_path, _content(subset_path), dataset) if subset_path else None
    places = []
    for query in dataset.queries:
        subset = None if inside is None else inside[query.id]
        names = lists[query.id]
        if not dataset.protocol.keep_reference:
            names = [name for name in names if name != query.reference]
        places.append((ranks_in_list(names, query.right, subset),))
    return dataset.outcome(places)


def read_predictions(path: Path, dataset: Dataset) -> dict[str, list[str]]:
    """Read and check a submission file, of a hidden split too: query id -> names of pictures."""
    return _checked(path, _content(path), dataset)


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


def _names(value: Any, query_id: str, wanted: Submission) -> list[str]:
    """The picture names of one list, as the dataset spells them."""
    kinds = wanted.kinds
    if not isinstance(value, list) or not all(isinstance(item, kinds) and not isinstance(item, bool) for item in value):
        raise BadInput(f"query {query_id} must have a list of {wanted.called}")
    return [wanted.read(item) for item in value]
