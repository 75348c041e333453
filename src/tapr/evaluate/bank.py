"""The gallery of a benchmark's pictures: opened, or built with the benchmark's own picture names as ids."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tapr.encoders.base import EncoderCard
from tapr.errors import BadInput
from tapr.evaluate.cut_outs import part_name
from tapr.evaluate.datasets.base import Dataset, each, read_json
from tapr.gallery import Gallery
from tapr.index.options import IndexOptions
from tapr.methods.features import Composed
from tapr.query.crop import cells_inside
from tapr.store.catalog import Entry
from tapr.store.layout import MANIFEST
from tapr.utils.amounts import counted
from tapr.utils.files import write_atomically
from tapr.utils.progress import Progress

_SHOWN = 5
OFFLINE_CAPTIONS = "the built-in captioner's, where it is sure"


def open_bank(
    dataset: Dataset,
    path: Path,
    *,
    encoder: str | None = None,
    extractor: str | None = None,
    fit: str | None = None,
    template: str | None = None,
    centre: bool | None = None,
    progress: Progress | None = None,
) -> Gallery:
    """Open the gallery at `path`, or build it there from the benchmark's files.

    A gallery that was built here has a table of its pictures beside it. It is brought up to date, because an earlier
    run may have been stopped while it encoded.
    """
    table = path.with_name(f"{path.name}.jsonl")
    if (path / MANIFEST).exists() and not table.exists():
        gallery = Gallery.open(path)
        asked = IndexOptions.of(encoder=encoder, extractor=extractor, fit=fit, template=template, centre=centre)
        asked.check_against(path, gallery.manifest)
        return gallery
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        json.dumps({"id": name, "path": os.path.realpath(file)}, ensure_ascii=False) + "\n"
        for name, file in dataset.pictures.items()
    )
    write_atomically(table, rows.encode())
    return Gallery.build(
        path, table, encoder, extractor=extractor, fit=fit, template=template, centre=centre, progress=progress
    )


def check_pictures(dataset: Dataset, allow_missing: bool) -> Dataset:
    """Remove queries and pictures whose files are missing. Refused unless `allow_missing` is set."""
    missing = dataset.missing()
    if not missing:
        return dataset
    if not allow_missing:
        listed = ", ".join(str(dataset.pictures[name]) for name in missing[:_SHOWN])
        raise BadInput(
            f"{len(missing):,} of {counted(len(dataset.pictures), 'picture')} missing, such as {listed}: "
            "complete the folder, or rank what is there with --allow-missing"
        )
    return dataset.without(dict.fromkeys(missing, "its file is missing"))


def check_bank(dataset: Dataset, gallery: Gallery, allow_missing: bool) -> Dataset:
    """Remove what the gallery does not have, such as pictures that cannot be decoded. Refused unless `allow_missing` is
    set.
    """
    known = _Known(gallery)
    lost = [name for name, path in dataset.pictures.items() if known.entry(name, path) is None]
    if not lost:
        return dataset
    failed = {entry.id: entry.failure or "" for entry in gallery.failures()}
    if not allow_missing:
        reason = f" ({failed[lost[0]]})" if lost[0] in failed else ""
        raise BadInput(
            f"the gallery {str(gallery.path)!r} lacks {len(lost):,} of the benchmark's pictures, such as {lost[0]}"
            f"{reason}: mend or index them, or rank what is there with --allow-missing"
        )
    return dataset.without({name: failed.get(name, "the gallery does not have it") for name in lost})


class _Known:
    """Finds a gallery's entry by id, or else by the real path of its file."""

    def __init__(self, gallery: Gallery) -> None:
        entries = gallery.entries(range(len(gallery)))
        self._by_id = {entry.id: entry for entry in entries}
        self._by_path = {os.path.realpath(entry.path): entry for entry in entries}

    def entry(self, name: str, path: Path) -> Entry | None:
        return self._by_id.get(name) or self._by_path.get(os.path.realpath(path))


@dataclass(frozen=True)
class BankRows:
    """The row of each benchmark picture in a gallery."""

    row_of: dict[str, int]  # name -> physical row
    sha256_of: dict[str, str]  # name -> sha256 of the picture's bytes
    digest: str  # sha256 over the encoder, the bank's options and every picture's name and content
    size_of: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> width and height in pixels
    captions: dict[int, tuple[str, ...]] | None = None  # row -> captions; None: not every picture has one
    captioned_by: str = ""

    def with_captions(self, found: Mapping[str, tuple[str, ...]], origin: str) -> BankRows:
        """Other captions, by the pictures' names; every picture must have one."""
        lost = [name for name in self.row_of if name not in found]
        if lost:
            raise BadInput(f"{origin} has no captions of {len(lost):,} pictures, such as {lost[0]}: add them")
        captions = {row: found[name] for name, row in self.row_of.items()}
        return replace(self, captions=captions, captioned_by=f"the file {origin}")


def read_captions(path: Path) -> dict[str, tuple[str, ...]]:
    """{name: [captions]}, or WeiMoCIR's own form: a list of {candidate, captions}."""
    value = read_json(path)
    if isinstance(value, list):
        value = {str(row["candidate"]): row["captions"] for row in each(value, path, "candidate", "captions")}
    fits = isinstance(value, dict) and all(
        isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts) for texts in value.values()
    )
    if not fits:
        raise BadInput(f"{path} must hold a list of captions for each picture's name")
    return {name: tuple(texts) for name, texts in value.items()}


def composed_references(dataset: Dataset, rows: BankRows, card: EncoderCard) -> dict[str, Composed]:
    """Query id -> its references, of queries that have several or a part of one."""
    made = {}
    for query in dataset.queries:
        if not query.composed:
            continue
        first = query.reference if query.crop is None else part_name(query)
        inside = None if query.crop is None else cells_inside(query.crop, rows.size_of[query.reference], card)
        made[query.id] = Composed(
            (first, *query.more), ((query.reference, inside), *((name, None) for name in query.more))
        )
    return made


def find_rows(dataset: Dataset, gallery: Gallery) -> BankRows:
    """Look up the row of every picture. Call check_bank first: a missing picture is an error here."""
    known = _Known(gallery)
    row_of: dict[str, int] = {}
    sha256_of: dict[str, str] = {}
    size_of: dict[str, tuple[int, int]] = {}
    captions: dict[int, tuple[str, ...]] = {}
    digest = hashlib.sha256(json.dumps(gallery.manifest.encoder, sort_keys=True).encode())
    digest.update(json.dumps([gallery.precision, gallery.manifest.image_mean, gallery.manifest.text_mean]).encode())
    for name, path in dataset.pictures.items():
        entry = known.entry(name, path)
        if entry is None or entry.row is None:
            raise BadInput(f"the gallery {str(gallery.path)!r} lacks the benchmark's picture {name}: index it")
        row_of[name], sha256_of[name] = entry.row, entry.sha256
        size_of[name] = (entry.width or 1, entry.height or 1)
        if entry.caption is not None:
            captions[entry.row] = (entry.caption,) if entry.caption else ()
        digest.update(f"{name}\0{entry.sha256}\0".encode())
    whole = all(row in captions for row in row_of.values())
    return BankRows(row_of, sha256_of, digest.hexdigest(), size_of, captions if whole else None, OFFLINE_CAPTIONS)
