"""FashionIQ: product photos of dresses, shirts and tops, each kind ranking its own gallery."""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, each, find_file, read_json
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol

CATEGORIES = ("dress", "shirt", "toptee")
GALLERIES = ("original", "val")
_METRICS = metrics("R@10", "R@50")
_ENDS = ".?, "  # what is stripped from both ends of a caption


def load(data: Path, split: str | None = None, gallery: str | None = None) -> Dataset:
    """`data` holds captions/, image_splits/ and images/ID.png or .jpg; protocol `original` ranks the split files."""
    split = choose_split(split, ("val",), "FashionIQ")
    gallery = gallery or "original"
    if gallery not in GALLERIES:
        raise BadInput(f"FashionIQ has the galleries {', '.join(GALLERIES)}, not {gallery!r}")
    parts, annotations, names = [], [], set()
    for category in CATEGORIES:
        captions = find_file(data, f"captions/cap.{category}.{split}.json")
        split_file = find_file(data, f"image_splits/split.{category}.{split}.json")
        annotations += [captions, split_file]
        queries = tuple(
            Query(
                id=f"{category}-{number}",
                reference=row["candidate"],
                edit=join_captions(row["captions"]),
                right=(row["target"],),
                groups=(category,),
            )
            for number, row in enumerate(each(read_json(captions), captions, "target", "candidate", "captions"))
        )
        asked = {name for query in queries for name in (query.reference, *query.right)}
        ranked = tuple(read_json(split_file)) if gallery == "original" else tuple(sorted(asked))
        parts.append(Part(category, ranked, queries))
        names |= asked | set(ranked)
    sizes = ", ".join(f"{part.name} {len(part.gallery):,}" for part in parts)
    meaning = "the split files" if gallery == "original" else "the union of references and targets"
    protocol = Protocol(
        dataset="FashionIQ",
        split=split,
        gallery=f"protocol {gallery}: {meaning} ({sizes} pictures)",
        keep_reference=True,
        edit_text='the two captions stripped of ".?, " and joined by " and "',
        metrics=_METRICS,
        main=Metric("R", 10),
        grouped=_METRICS,
        macro=True,
    )
    return Dataset(protocol, tuple(parts), {name: _file(data, name) for name in sorted(names)}, tuple(annotations))


def join_captions(captions: list[str]) -> str:
    return " and ".join(caption.strip(_ENDS) for caption in captions)


def _file(data: Path, name: str) -> Path:
    for folder in ("images", "image_data"):
        for suffix in (".png", ".jpg"):
            path = data / folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return data / "images" / f"{name}.png"


ROWS = (
    DatasetRow(
        "fashioniq",
        "FashionIQ: R@10/50 of dresses, shirts and tops.",
        load,
        titles=("FashionIQ",),
        splits="val.",
        order=30,
        galleries=GALLERIES,
    ),
)
