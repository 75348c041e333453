"""GeneCIS: a condition of one or two words, and a gallery of about fifteen pictures per query.

The authors' files (facebookresearch/genecis): genecis/{focus,change}_{object,attribute}.json, a list of {condition,
reference, target, gallery}. The object tasks have pictures of COCO val2017, by numbers under val_image_id. The
attribute tasks have objects cut out of Visual Genome: image_id and instance_bbox (left, top, width and height in
pixels). As the authors' code does, a box is moved by 0.7 of its size to the left and up, made 1.7 times as large, and
put on a black square.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.cut_outs import CutOut
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.circo import picture_name
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.types import Box

SPLITS = ("focus_object", "change_object", "focus_attribute", "change_attribute")
_COCO = ("val2017", "coco/val2017", "COCO/val2017")
_GENOME = ("VG_All", "VG_100K_all", "VG_100K", "VG_100K_2")
_WIDER = 0.7
_OF = "@"  # between the number of a picture and the box of an object


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
    attributes = split.endswith("attribute")
    known = _GENOME if attributes else _COCO
    folders = [data / name for name in known if (data / name).is_dir()] or [data / known[0]]
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
    pictures = {name: _file(folders, name.partition(_OF)[0]) for name in names}
    parts = {name: CutOut(pictures[name], _box(name), pixels=True, square=True) for name in names} if attributes else {}
    return Dataset(protocol, (Part("all", gallery, tuple(queries)),), pictures, (path,), cut_outs=parts)


def _file(folders: Sequence[Path], name: str) -> Path:
    places = [folder / f"{name}.jpg" for folder in folders]
    return next((place for place in places if place.is_file()), places[0])


def _box(name: str) -> Box:
    left, top, width, height = (float(value) for value in name.partition(_OF)[2].split(","))
    left, top = max(0.0, left - _WIDER * width), max(0.0, top - _WIDER * height)
    return left, top, left + (1 + _WIDER) * width, top + (1 + _WIDER) * height


def _name(picture: Any, path: Path) -> str:
    """COCO's name of a picture; or Visual Genome's number, and the box of the object in it."""
    box = picture.get("instance_bbox") if isinstance(picture, dict) else None
    if box is not None:
        whole = isinstance(box, list) and len(box) == 4 and all(isinstance(value, int | float) for value in box)
        if not whole or "image_id" not in picture:
            raise BadInput(
                f"{path}: a picture is {{image_id, instance_bbox: [left, top, width, height]}}, not {picture!r}"
            )
        return f"{picture['image_id']}{_OF}{','.join(f'{value:g}' for value in box)}"
    number = picture.get("val_image_id") if isinstance(picture, dict) else None
    if type(number) is not int:
        raise BadInput(f"{path}: a picture is {{val_image_id}}, not {picture!r}")
    return picture_name(number)


ROWS = (
    DatasetRow(
        "genecis",
        "GeneCIS: focus on, or change, an object or attribute; R@1/2/3 in a gallery per query.",
        lambda data, split, gallery: load(data, split),
        titles=("GeneCIS",),
        splits="focus_object (default), change_object, focus_attribute or change_attribute.",
        order=51,
    ),
)
