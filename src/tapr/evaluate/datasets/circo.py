"""CIRCO: open-domain queries with several right answers over COCO's unlabeled pictures."""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.datasets.submission import AnswerFile, Submission
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol

SPLITS = ("val", "test")
_METRICS = metrics("mAP@5", "mAP@10", "mAP@25", "mAP@50", "R@5", "R@10", "R@25", "R@50")


def load(data: Path, split: str | None = None) -> Dataset:
    """`data` holds annotations/{val,test}.json and, for a ranking, COCO2017_unlabeled/ with COCO's own list."""
    split = choose_split(split, SPLITS, "CIRCO")
    path = find_file(data, f"annotations/{split}.json", f"{split}.json")
    hidden = split == "test"
    fields = ("id", "reference_img_id", "relative_caption") + (() if hidden else ("target_img_id", "gt_img_ids"))
    queries = []
    for row in each(read_json(path), path, *fields):
        right: list[str] = []
        if not hidden:
            target = picture_name(row["target_img_id"])
            right = [target, *(name for name in map(picture_name, row["gt_img_ids"]) if name != target)]
        queries.append(
            Query(
                id=str(row["id"]),
                reference=picture_name(row["reference_img_id"]),
                edit=row["relative_caption"],
                right=tuple(right),
                groups=tuple(row.get("semantic_aspects", ())),
                concept=str(row.get("shared_concept", "")).strip(),
            )
        )
    gallery, folder, note = _gallery(data, queries)
    protocol = Protocol(
        dataset="CIRCO",
        split=split,
        gallery=f"COCO unlabeled2017, {len(gallery):,} {'pictures' if folder.is_dir() else 'names known here'}",
        keep_reference=True,
        edit_text="relative_caption as it stands; shared_concept is not used",
        metrics=_METRICS,
        main=Metric("mAP", 5),
        grouped=metrics("mAP@10"),
        hidden=hidden,
        tunable=not hidden,
    )
    pictures = {name: folder / f"{name}.jpg" for name in gallery}
    parts = (Part("all", gallery, tuple(queries)),)
    return Dataset(protocol, parts, pictures, (path,), note, submission=SUBMISSION)


def picture_name(number: int | str) -> str:
    try:
        return f"{int(number):012d}"
    except ValueError:
        raise BadInput(f"{number!r} is no number of a COCO picture") from None


SUBMISSION = Submission(
    (AnswerFile("circo_{split}_{method}.json", 50),),
    kinds=(int, str),  # some authors hand in numbers as text, and the server takes them
    called="numbers",
    write=int,
    read=picture_name,
    knows_gallery=False,
)
ROWS = (
    DatasetRow(
        "circo",
        "CIRCO: mAP@5/10/25/50 over COCO unlabeled2017.",
        lambda data, split, gallery: load(data, split),
        titles=("CIRCO",),
        splits="val (default) or test.",
        development={"test": "val"},
        order=10,
    ),
)


def _gallery(data: Path, queries: list[Query]) -> tuple[tuple[str, ...], Path, tuple[str, ...]]:
    """The pictures of COCO's list; without the list, those in the folder; without both, the annotated ones."""
    root = data / "COCO2017_unlabeled"
    folder = next((path for path in (root / "unlabeled2017", data / "unlabeled2017") if path.is_dir()), None)
    listed = root / "annotations" / "image_info_unlabeled2017.json"
    if listed.is_file():
        images = read_json(listed)["images"]
        return tuple(picture_name(image["id"]) for image in images), folder or root / "unlabeled2017", ()
    annotated = {name for query in queries for name in (query.reference, *query.right)}
    if folder is not None:
        names = tuple(sorted(path.stem for path in folder.glob("*.jpg")))
        lost = sorted(annotated - set(names))
        if lost:
            raise BadInput(f"{folder} lacks {len(lost)} annotated pictures, such as {lost[0]}.jpg: check the folder")
        return names, folder, (f"COCO's list was not there: the gallery is the {len(names):,} pictures of {folder}",)
    return tuple(sorted(annotated)), root / "unlabeled2017", ("no pictures: only the annotated names are known",)
