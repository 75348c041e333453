"""Your own benchmark: queries.jsonl with {id, reference, edit, targets}, beside the pictures.

A query may have `references` instead, a list of up to three, and `crop`, the part of the first one that counts: both as
a search takes them. References and targets are paths relative to the file. The gallery is every picture of
`gallery.txt` (one path per line) where that file exists, else every picture below the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.images.decode import looks_like_picture
from tapr.options import MAX_REFERENCES
from tapr.query.crop import checked_box
from tapr.utils.lines import lines_of

_METRICS = metrics("mAP@5", "mAP@10", "mAP@50", "R@1", "R@5", "R@10", "R@50", "Hit@1", "Hit@10")


def load(data: Path, split: str | None = None) -> Dataset:
    path = data / f"{split}.jsonl" if split else data / "queries.jsonl" if data.is_dir() else data
    try:
        lines = lines_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"cannot read the queries {str(path)!r}: {reason}") from None
    queries = tuple(_query(line, path, number) for number, line in enumerate(lines, 1) if line.strip())
    if not queries:
        raise BadInput(f"{path} holds no queries")
    if len({query.id for query in queries}) != len(queries):
        raise BadInput(f"{path}: two queries have the same id")
    root = path.parent
    listed = root / "gallery.txt"
    notes: tuple[str, ...] = ()
    if listed.is_file():
        gallery = tuple(line.strip() for line in lines_of(listed.read_text(encoding="utf-8")) if line.strip())
    else:
        below = tuple(_pictures_below(root))
        gallery = tuple(name for name in below if name.encode(errors="ignore").decode() == name)
        if len(gallery) < len(below):
            notes = (f"{len(below) - len(gallery)} pictures whose names are not UTF-8 are not in the gallery",)
    names = dict.fromkeys([*gallery, *(name for query in queries for name in query.references)])
    lost = [name for query in queries for name in query.right if name not in names]
    if lost:
        raise BadInput(f"the target {lost[0]!r} is not in the gallery: list it in {listed} or put it under {root}")
    protocol = Protocol(
        dataset=root.resolve().name,
        split=path.stem,
        gallery=f"{'gallery.txt' if listed.is_file() else 'every picture of the folder'}, {len(gallery):,} pictures",
        keep_reference=False,
        edit_text="edit as it stands",
        metrics=_METRICS,
        main=Metric("mAP", 10),
        tunable=not path.stem.startswith("test"),
    )
    pictures = {name: root / name for name in names}
    return Dataset(protocol, (Part("all", gallery, queries),), pictures, (path,), notes)


def _pictures_below(root: Path) -> Iterator[str]:
    """Names relative to the folder, in order. Links to folders are followed: pictures are often kept elsewhere."""

    def walk(folder: Path, above: set[Path]) -> Iterator[str]:
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            raise BadInput(f"cannot look for pictures in {str(folder)!r}: {error.strerror}") from None
        for path in paths:
            if path.name.startswith("."):
                continue
            if not path.is_dir():
                if looks_like_picture(path):
                    yield path.relative_to(root).as_posix()
            elif (real := path.resolve()) not in above:  # a link to a folder above it would never end
                yield from walk(path, above | {real})

    return walk(root, {root.resolve()})


def _query(line: str, path: Path, number: int) -> Query:
    try:
        row = json.loads(line)
        references = row["references"] if "references" in row else [row["reference"]]
        texts = [row["id"], *references, row["edit"], *row["targets"]]
        right = tuple(row["targets"])
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}, line {number}: a query is {{id, reference, edit, targets}} ({error!r})") from None
    if not all(isinstance(text, str) for text in texts[1:]) or not (
        references and all(references) and all(right) and right
    ):
        raise BadInput(f"{path}, line {number}: reference, edit and at least one target must be text")
    if len(references) > MAX_REFERENCES or ("reference" in row and "references" in row):
        what = f"give one `reference`, or a list of at most {MAX_REFERENCES} `references`"
        raise BadInput(f"{path}, line {number}: {what}")
    try:
        crop = None if row.get("crop") is None else checked_box(row["crop"])
    except BadInput as error:
        raise BadInput(f"{path}, line {number}: {error}") from None
    return Query(str(row["id"]), references[0], row["edit"], right, more=tuple(references[1:]), crop=crop)


ROWS = (
    DatasetRow(
        "jsonl",
        "Your own queries.jsonl of {id, reference, edit, targets}.",
        lambda data, split, gallery: load(data, split),
        splits="NAME reads NAME.jsonl; default queries.",
        development={"test": "val"},
        order=90,
    ),
)
