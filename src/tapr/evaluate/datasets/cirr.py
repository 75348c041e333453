"""CIRR: real-life pictures in sets of six, with one right answer in the split and a ranking inside the set."""

from __future__ import annotations

from pathlib import Path

from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.datasets.submission import AnswerFile, Submission
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol

SPLITS = ("val", "test1")
_METRICS = metrics("R@1", "R@5", "R@10", "R@50", "Rsubset@1", "Rsubset@2", "Rsubset@3")


def load(data: Path, split: str | None = None) -> Dataset:
    """`data` holds captions/cap.rc2.*.json, image_splits/split.rc2.*.json and the pictures, if need be in img_raw/."""
    split = choose_split(split, SPLITS, "CIRR")
    captions = find_file(data, f"captions/cap.rc2.{split}.json", f"cirr/captions/cap.rc2.{split}.json")
    root = captions.parents[1]
    names_file = find_file(root, f"image_splits/split.rc2.{split}.json")
    paths: dict[str, str] = read_json(names_file)
    hidden = split == "test1"
    fields = ("pairid", "reference", "caption", "img_set") + (() if hidden else ("target_hard",))
    queries = tuple(
        Query(
            id=str(row["pairid"]),
            reference=row["reference"],
            edit=row["caption"],
            right=() if hidden else (row["target_hard"],),
            subset=tuple(row["img_set"]["members"]),
        )
        for row in each(read_json(captions), captions, *fields)
    )
    protocol = Protocol(
        dataset="CIRR",
        split=split,
        gallery=f"the whole {split} split, {len(paths):,} pictures",
        keep_reference=False,
        edit_text="caption as it stands",
        metrics=_METRICS,
        main=Metric("R", 1),
        hidden=hidden,
        tunable=not hidden,
    )
    folder = _pictures_folder(data, root, paths)
    pictures = {name: folder / path for name, path in paths.items()}
    parts = (Part("all", tuple(paths), queries),)
    return Dataset(protocol, parts, pictures, (captions, names_file), submission=SUBMISSION)


def _pictures_folder(data: Path, root: Path, paths: dict[str, str]) -> Path:
    """Return where the splits' paths begin: at the folder itself, or at img_raw/ as in the authors' own layout."""
    first = next(iter(paths.values()), "")
    places = (data, *(folder / "img_raw" for folder in (data, root, root.parent)))
    return next((place for place in places if (place / first).is_file()), data)


_RECALL = {"version": "rc2", "metric": "recall"}
_SUBSET = {"version": "rc2", "metric": "recall_subset"}
SUBMISSION = Submission(
    (
        AnswerFile("cirr_{split}_{method}_recall.json", 50, "gallery", _RECALL),
        AnswerFile("cirr_{split}_{method}_subset.json", 3, "subset", _SUBSET),
    ),
    names_reference=False,
    head_rule='a CIRR submission says "version": "rc2" and "metric": "recall" or "recall_subset"',
)
ROWS = (
    DatasetRow(
        "cirr",
        "CIRR: R@k over the split, Rsubset@k inside the set.",
        lambda data, split, gallery: load(data, split),
        titles=("CIRR",),
        splits="val (default) or test1.",
        development={"test1": "val"},
        order=20,
    ),
)  # fmt: skip
