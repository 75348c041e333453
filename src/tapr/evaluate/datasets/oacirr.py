"""OACIRR (arXiv 2604.05393): an object in the reference, given by a box, in another scene.

The authors' layout (HaHaJun1101/OACIR): OACIRR-Subset/OACIRR-{Fashion,Car,Product,Landmark}/ with the pictures and, in
oacirr-NAME/, quadruple_captions/caption_full.val.json, a list of {reference, target, modification_text_mllm,
reference_bounding_box} with boxes as left, top, right, bottom in pixels, and image_splits/split.val.json, {name: path}.
R@k is of the target. Hit@k is the authors' instance recall: any picture of the same instance, which is a folder.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image, UnidentifiedImageError

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.types import Box

SPLITS = ("fashion", "car", "product", "landmark")


def load(data: Path, split: str | None = None) -> Dataset:
    split = choose_split(split, SPLITS, "OACIRR")
    title, lists = f"OACIRR-{split.capitalize()}", f"oacirr-{split}"
    places = [f"OACIRR-Subset/{title}/", f"{title}/", ""]
    asked = find_file(data, *(f"{place}{lists}/quadruple_captions/caption_full.val.json" for place in places))
    listed = find_file(data, *(f"{place}{lists}/image_splits/split.val.json" for place in places))
    root = listed.parents[2]
    paths = read_json(listed)
    if not isinstance(paths, dict) or not all(isinstance(path, str) for path in paths.values()):
        raise BadInput(f"{listed} must hold the path of each picture by its name")
    pictures = {name: root / path for name, path in paths.items()}
    instances: dict[PurePosixPath, list[str]] = {}
    for name, path in paths.items():
        instances.setdefault(PurePosixPath(path).parent, []).append(name)
    fields = ("reference", "target", "modification_text_mllm", "reference_bounding_box")
    queries = []
    for number, row in enumerate(each(read_json(asked), asked, *fields)):
        reference, target = row["reference"], row["target"]
        lost = next((name for name in (reference, target) if name not in pictures), None)
        if lost is not None:
            raise BadInput(f"{asked}: {lost!r} of query {number} is not in {listed}")
        others = [name for name in instances[PurePosixPath(paths[target]).parent] if name not in (target, reference)]
        crop = _box(row["reference_bounding_box"], pictures[reference], f"{asked}, query {number}")
        queries.append(Query(str(number), reference, row["modification_text_mllm"], (target, *others), crop=crop))
    if not queries:
        raise BadInput(f"{asked} holds no queries")
    protocol = Protocol(
        dataset="OACIRR",
        split=split,
        gallery=f"the pictures of split.val.json, {len(pictures):,}",
        keep_reference=False,
        edit_text="modification_text_mllm as it stands",
        metrics=metrics("R@1", "R@5", "R@10", "R@50", "Hit@1", "Hit@3", "Hit@5"),
        main=Metric("R", 1),
        tunable=False,
    )
    return Dataset(protocol, (Part("all", tuple(pictures), tuple(queries)),), pictures, (asked, listed))


def _box(box: Any, file: Path, where: str) -> Box | None:
    """Pixels -> parts of the picture's sides. None where the file is not there: the run then says so."""
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(value, int | float) for value in box):
        raise BadInput(f"{where}: a box is [left, top, right, bottom] in pixels, not {box!r}")
    try:
        with Image.open(file) as image:  # its header alone is read
            width, height = image.size
    except (OSError, UnidentifiedImageError):
        return None
    left, right = sorted(min(max(float(value) / width, 0.0), 1.0) for value in (box[0], box[2]))
    top, bottom = sorted(min(max(float(value) / height, 0.0), 1.0) for value in (box[1], box[3]))
    if left == right or top == bottom:
        raise BadInput(f"{where}: the box {box} is no part of {file}, which has {width} x {height} pixels")
    return left, top, right, bottom


ROWS = (
    DatasetRow(
        "oacirr",
        "OACIRR: an object in the reference, given by a box, in another scene; R@k, and Hit@k of its instance.",
        lambda data, split, gallery: load(data, split),
        titles=("OACIRR",),
        splits="fashion (default), car, product or landmark.",
        order=54,
    ),
)
