"""GeneCIS, its two object tasks: a condition of one or two words, and a gallery of about fifteen pictures per query.

The authors' files (facebookresearch/genecis): genecis/{focus,change}_object.json, a list of {condition, reference,
target, gallery} with COCO's numbers under val_image_id; pictures of COCO val2017. The two attribute tasks are crops of
Visual Genome, which are not read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.circo import picture_name
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol

SPLITS = ("focus_object", "change_object")
_FOLDERS = ("val2017", "coco/val2017", "COCO/val2017")


def load(data: Path, split: str | None = None) -> Dataset:
    split = choose_split(split, SPLITS, "GeneCIS")
    path = find_file(data, f"genecis/{split}.json", f"{split}.json")
    queries = []
    for number, row in enumerate(each(read_json(path), path, "condition", "reference", "target", "gallery")):
        target = _name(row["target"], path)
        members = tuple(dict.fromkeys((target, *(_name(one, path) for one in row["gallery"]))))
        queries.append(Query(str(number), _name(row["reference"], path), str(row["condition"]), (target,), members))
    if not queries:
        raise BadInput(f"{path} holds no queries")
    gallery = tuple(sorted({name for query in queries for name in query.subset}))
    names = sorted({*gallery, *(query.reference for query in queries)})
    folder = next((data / name for name in _FOLDERS if (data / name).is_dir()), data / _FOLDERS[0])
    protocol = Protocol(
        dataset="GeneCIS",
        split=split,
        gallery=f"each query's own, {len(gallery):,} pictures in all; R@k over all of them is not the benchmark's",
        keep_reference=False,
        edit_text="condition as it stands",
        metrics=metrics("Rsubset@1", "Rsubset@2", "Rsubset@3", "R@10"),
        main=Metric("Rsubset", 1),
        tunable=False,
    )
    pictures = {name: folder / f"{name}.jpg" for name in names}
    return Dataset(protocol, (Part("all", gallery, tuple(queries)),), pictures, (path,))


def _name(picture: Any, path: Path) -> str:
    number = picture.get("val_image_id") if isinstance(picture, dict) else None
    if type(number) is not int:
        raise BadInput(f"{path}: a picture is {{val_image_id}}, not {picture!r}")
    return picture_name(number)


ROWS = (
    DatasetRow(
        "genecis",
        "GeneCIS: focus on, or change, an object; R@1/2/3 in a gallery per query.",
        lambda data, split, gallery: load(data, split),
        titles=("GeneCIS",),
        splits="focus_object (default) or change_object.",
        order=51,
    ),
)
