"""The bank a benchmark is ranked in: opened or built from the benchmark's own picture names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset
from tapr.gallery import Gallery
from tapr.gallery.build import Progress
from tapr.gallery.layout import MANIFEST, write_atomically

_SHOWN = 5


def open_bank(
    dataset: Dataset,
    path: Path,
    *,
    encoder: str | None = None,
    extractor: str | None = None,
    progress: Progress | None = None,
) -> Gallery:
    """The gallery at `path`; made there, from the benchmark's files, when there is none.

    One that was made here has its table of pictures beside it, and is brought up to date: a run that was stopped while
    it encoded left it incomplete.
    """
    table = path.with_name(f"{path.name}.jsonl")
    if (path / MANIFEST).exists() and not table.exists():
        gallery = Gallery.open(path)
        if extractor is not None and gallery.card.extractor.removesuffix("+centred") != extractor:
            raise BadInput(f"the gallery {str(path)!r} has the extractor {gallery.card.extractor}, not {extractor}")
        return gallery
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        json.dumps({"id": name, "path": str(file.resolve())}, ensure_ascii=False) + "\n"
        for name, file in dataset.pictures.items()
    )
    write_atomically(table, rows.encode())
    return Gallery.build(path, table, encoder, extractor=extractor, progress=progress)


def check_pictures(dataset: Dataset, allow_missing: bool) -> Dataset:
    """The dataset, or what is left of it; refuses missing pictures unless they were allowed for."""
    missing = dataset.missing()
    if not missing:
        return dataset
    if not allow_missing:
        listed = ", ".join(str(dataset.pictures[name]) for name in missing[:_SHOWN])
        raise BadInput(
            f"{len(missing):,} of {len(dataset.pictures):,} pictures are missing, such as {listed}: "
            "complete the folder, or rank what is there with --allow-missing"
        )
    return dataset.without(set(missing))


@dataclass(frozen=True)
class Rows:
    """Where each of the benchmark's pictures stands in a bank."""

    row_of: dict[str, int]  # name -> physical row
    digest: str  # sha256 over the encoder, the bank's options and every picture's name and content


def find_rows(dataset: Dataset, gallery: Gallery) -> Rows:
    """Pictures are found by their id in the gallery, else by their file."""
    entries = gallery.entries(range(len(gallery)))
    by_id = {entry.id: entry for entry in entries}
    by_path = {entry.path: entry for entry in entries}
    row_of: dict[str, int] = {}
    digest = hashlib.sha256(json.dumps(gallery.manifest.encoder, sort_keys=True).encode())
    digest.update(json.dumps([gallery.precision, gallery.manifest.image_mean, gallery.manifest.text_mean]).encode())
    lost: list[str] = []
    for name, path in dataset.pictures.items():
        entry = by_id.get(name) or by_path.get(str(path.resolve()))
        if entry is None or entry.row is None:
            lost.append(name)
            continue
        row_of[name] = entry.row
        digest.update(f"{name}\0{entry.sha256}\0".encode())
    if lost:
        raise BadInput(_lost(lost, gallery))
    return Rows(row_of, digest.hexdigest())


def _lost(lost: Sequence[str], gallery: Gallery) -> str:
    failed = {entry.id: entry.failure for entry in gallery.failures()}
    reason = f" ({failed[lost[0]]})" if lost[0] in failed else ""
    return (
        f"the gallery {str(gallery.path)!r} lacks {len(lost):,} of the benchmark's pictures, such as {lost[0]}{reason}"
        ": index them, or leave --gallery out and let tapr eval build one"
    )
