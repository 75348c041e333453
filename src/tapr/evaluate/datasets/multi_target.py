"""SoFT's multi-target CIRR and FashionIQ: the validation queries again, with every picture that fits as a right answer.

The authors' files (jjungyujin/SoFT): {cirr,dress,shirt,toptee}_multi_target_selection.json, beside or under the
benchmark's own folder. A query has `confidence_scores`: its keys are the right answers, as in the authors' loader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets import cirr, fashioniq
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics

_METRICS = metrics("mAP@5", "mAP@10", "mAP@25", "mAP@50", "Hit@1", "Hit@10")
_FIELDS = ("reference_image_name", "target_image_name", "relative_captions", "confidence_scores")
_FOLDER = "mt_pipeline/llm/multi_target_selection"


def load(data: Path, split: str | None = None) -> Dataset:
    """`data` is the folder of CIRR or FashionIQ, with SoFT's files in it."""
    split = choose_split(split, ("cirr", "fashioniq"), "SoFT's multi-target sets")
    base = cirr.load(data, "val") if split == "cirr" else fashioniq.load(data, "val")
    parts, files = [], []
    for part in base.parts:
        name = f"{'cirr' if split == 'cirr' else part.name}_multi_target_selection.json"
        path = find_file(data, name, f"multi_target_selection/{name}", f"{_FOLDER}/{name}")
        files.append(path)
        rows = enumerate(each(read_json(path), path, *_FIELDS))
        known = frozenset(part.gallery)
        groups = () if split == "cirr" else (part.name,)
        parts.append(Part(part.name, part.gallery, tuple(_query(n, row, part, known, groups, path) for n, row in rows)))
    protocol = replace(
        base.protocol,
        dataset=f"multi-target {base.protocol.dataset}",
        metrics=_METRICS,
        main=Metric("mAP", 5),
        grouped=metrics("mAP@10") if split == "fashioniq" else (),
    )
    return replace(
        base, protocol=protocol, parts=tuple(parts), annotations=(*base.annotations, *files), submission=None
    )


def _query(
    number: int, row: dict[str, Any], part: Part, known: frozenset[str], groups: tuple[str, ...], path: Path
) -> Query:
    said, scores = row["relative_captions"], row["confidence_scores"]
    if not isinstance(scores, dict) or not scores:
        raise BadInput(f"{path}: query {number} has no right answers under confidence_scores")
    reference, target = str(row["reference_image_name"]), str(row["target_image_name"])
    # the target first; CIRR ranks without the reference, which some lists name
    right = [name for name in dict.fromkeys((target, *scores)) if name in scores or name == target]
    right = [name for name in right if name in known and not (name == reference and not groups)]
    if not right:
        raise BadInput(f"{path}: no right answer of query {number} is in the gallery of {part.name}")
    edit = fashioniq.join_captions(said) if isinstance(said, list) else str(said)
    return Query(f"{part.name}-{number}", reference, edit, tuple(right), groups=groups)


ROWS = (
    DatasetRow(
        "multi-target",
        "CIRR or FashionIQ with all fitting pictures as right answers (SoFT): mAP@5/10/25/50.",
        lambda data, split, gallery: load(data, split),
        titles=("multi-target CIRR", "multi-target FashionIQ"),
        splits="cirr (default) or fashioniq.",
        order=52,
    ),
)
