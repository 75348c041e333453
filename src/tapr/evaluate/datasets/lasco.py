"""LaSCo: photographs of COCO with edits made from people's questions and answers (VQA 2.0), one right answer each.

Split `val` is the official one (lasco_val.json over the pictures of lasco_val_corpus.json). CL-LaSCo, a subset with 13
categories, has two files: its train file is cut here into `tune`, to choose weights on, and `check`, to see whether
the choice holds; `cl-val` is its val file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.circo import picture_name
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol

HALVES = ("tune", "check")
SPLITS = ("val", *HALVES, "cl-val")
_FIELDS = ("qid", "query-image", "query-text", "target-image")
_METRICS = metrics("mAP@10", "R@1", "R@5", "R@10", "R@50")
_LATER = ("train2017", "val2017")  # COCO's later folders hold the same pictures under their bare numbers

Paths = dict[str, str]  # name of a picture -> its path in the annotations


def load(data: Path, split: str | None = None) -> Dataset:
    """`data` holds the annotation files and COCO's folders: train2014/ and val2014/, or train2017/ and val2017/."""
    split = choose_split(split, SPLITS, "LaSCo")
    return _official(data) if split == "val" else _subset(data, split)


def _official(data: Path) -> Dataset:
    """The corpus is ranked whole, as the lists say: the authors' repository holds no code that would say otherwise."""
    path = find_file(data, "lasco_val.json", "downloads/lasco_val.json")
    listed = find_file(data, "lasco_val_corpus.json", "downloads/lasco_val_corpus.json")
    paths: Paths = {}
    queries = tuple(_query(row, path, paths) for row in each(read_json(path), path, *_FIELDS))
    corpus: Paths = {}
    for row in each(read_json(listed), listed, "id", "path"):
        corpus[_name([row["id"], row["path"]], listed)] = row["path"]
    lost = next((name for query in queries for name in query.right if name not in corpus), None)
    if lost is not None:
        raise BadInput(f"the target {lost} is not in the corpus {listed}: the two files do not belong together")
    protocol = Protocol(
        dataset="LaSCo",
        split="val",
        gallery=f"the validation corpus, {len(corpus):,} pictures",
        keep_reference=True,
        edit_text="query-text as it stands",
        metrics=_METRICS,
        main=Metric("mAP", 10),
        tunable=False,
    )
    return _dataset(data, protocol, tuple(corpus), queries, paths | corpus, (path, listed))


def _subset(data: Path, split: str) -> Dataset:
    """Load one half; both rank every picture that the file names but the query's own reference."""
    name = f"CL-LaSCO_{'val' if split == 'cl-val' else 'train'}.json"
    path = find_file(data, name, f"C2IR_Benchmarks/CL-LaSCO/{name}")
    paths: Paths = {}
    queries = tuple(_query(row, path, paths, category) for category, row in _categories(read_json(path), path))
    asked = halves(queries)[HALVES.index(split)] if split in HALVES else queries
    protocol = Protocol(
        dataset="CL-LaSCo",
        split=split,
        gallery=f"every picture that {name} names, {len(paths):,}",
        keep_reference=False,
        edit_text="query-text as it stands",
        metrics=_METRICS,
        main=Metric("mAP", 10),
        grouped=metrics("mAP@10", "R@10"),
        tunable=split == "tune",
    )
    return _dataset(data, protocol, tuple(sorted(paths)), asked, paths, (path,))


def halves(queries: Sequence[Query]) -> tuple[tuple[Query, ...], tuple[Query, ...]]:
    """Two halves of every category that share no reference and no right answer.

    Queries that share a picture, also through others, are a family and stay together. Larger families are placed
    first, each into the half that has fewer queries of the family's categories so far.
    """
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    half_of: dict[str, int] = {}
    for family in sorted(_families(queries), key=len, reverse=True):  # equal sizes in the file's order
        categories = [category for query in family for category in query.groups]
        ahead = sum(counts[0][category] - counts[1][category] for category in categories)
        half = int(ahead > 0)
        counts[half].update(categories)
        half_of.update((query.id, half) for query in family)
    first, second = (tuple(query for query in queries if half_of[query.id] == half) for half in (0, 1))
    return first, second


def _families(queries: Sequence[Query]) -> list[list[Query]]:
    family_of: dict[str, list[Query]] = {}  # of each picture
    for query in queries:
        named = (query.reference, *query.right)
        joined = {id(family_of[name]): family_of[name] for name in named if name in family_of}
        family = [member for one in joined.values() for member in one] + [query]
        for member in family:
            for name in (member.reference, *member.right):
                family_of[name] = family
    return list({id(family): family for family in family_of.values()}.values())


def _categories(value: Any, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """{category: {qid: row}} -> (category, row)"""
    if not isinstance(value, dict) or not all(isinstance(rows, dict) for rows in value.values()):
        raise BadInput(f"{path} must hold the queries of each category by their qid")
    for category, rows in value.items():
        for row in each(list(rows.values()), path, *_FIELDS):
            yield category, row


def _query(row: Mapping[str, Any], path: Path, paths: Paths, *groups: str) -> Query:
    """The query; its two pictures are added to `paths`."""
    names = []
    for field in ("query-image", "target-image"):
        names.append(_name(row[field], path))
        paths[names[-1]] = row[field][1]
    if not isinstance(row["query-text"], str):
        raise BadInput(f"{path}: the query-text of the query {row['qid']} is not text")
    return Query(str(row["qid"]), names[0], row["query-text"], (names[1],), groups=groups)


def _name(picture: Any, path: Path) -> str:
    if not (isinstance(picture, list) and len(picture) > 1 and type(picture[0]) is int and isinstance(picture[1], str)):
        raise BadInput(f"{path}: a picture is [COCO's number, path], not {picture!r}")
    return picture_name(picture[0])


def _dataset(
    data: Path,
    protocol: Protocol,
    gallery: tuple[str, ...],
    queries: tuple[Query, ...],
    paths: Paths,
    annotations: tuple[Path, ...],
) -> Dataset:
    if not queries:
        raise BadInput(f"{annotations[0]} holds no queries")
    twice = next((name for name, count in Counter(query.id for query in queries).items() if count > 1), None)
    if twice is not None:
        raise BadInput(f"{annotations[0]}: two queries have the qid {twice}")
    pictures = {name: _file(data, name, paths[name]) for name in sorted(paths)}
    note = _later(pictures.values())
    return Dataset(protocol, (Part("all", gallery, queries),), pictures, annotations, note)


def _file(data: Path, name: str, annotated: str) -> Path:
    """Return the file where the annotations say; else in one of COCO's later folders."""
    original = Path(*Path(annotated).parts[-2:])  # the corpus writes val/val2014/, the queries val2014/
    places = [data / original, *(data / folder / f"{name}.jpg" for folder in _LATER)]
    return next((place for place in places if place.is_file()), places[0])


def _later(files: Iterable[Path]) -> tuple[str, ...]:
    """A note, where pictures were not found under the annotations' own paths."""
    counts = Counter(file.parent.name for file in files)
    found = [f"{counts[folder]:,} from {folder}" for folder in _LATER if counts[folder]]
    return (f"pictures not under the annotations' paths: {', '.join(found)}",) if found else ()


ROWS = (
    DatasetRow(
        "lasco",
        "LaSCo: photographs of COCO; mAP@10 and R@1/5/10/50 over LaSCo val or a half of CL-LaSCo train.",
        lambda data, split, gallery: load(data, split),
        titles=("LaSCo", "CL-LaSCo"),
        splits="val (default), tune, check or cl-val.",
        development={"check": "tune", "cl-val": "tune"},
        order=40,
    ),
)
