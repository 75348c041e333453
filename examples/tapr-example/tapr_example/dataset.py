"""The dataset `flags`: pictures of two stripes, which it draws itself, and edits that change one of them."""

from __future__ import annotations

import tempfile
from itertools import permutations
from pathlib import Path

from PIL import Image

from tapr.evaluate.datasets import Dataset, DatasetRow, Part, Query
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol

COLOURS = ("red", "green", "blue", "white")


def load(data: Path, split: str | None, gallery: str | None) -> Dataset:
    """`data` is not needed: the pictures are drawn into the folder of temporary files."""
    folder = Path(tempfile.gettempdir()) / "tapr-example-flags"
    folder.mkdir(exist_ok=True)
    pictures = {}
    for left, right in permutations(COLOURS, 2):
        name = f"{left}-{right}"
        pictures[name] = folder / f"{name}.png"
        flag = Image.new("RGB", (32, 32), left)
        flag.paste(Image.new("RGB", (16, 32), right), (16, 0))
        flag.save(pictures[name])
    queries = tuple(
        Query(f"{left}-{right}-{new}", f"{left}-{right}", f"the right half is {new}", (f"{left}-{new}",))
        for left, right, new in permutations(COLOURS, 3)
    )
    protocol = Protocol(
        dataset="Flags",
        split="all",
        gallery=f"{len(pictures)} flags of two colours",
        keep_reference=False,
        edit_text="written by rule",
        metrics=metrics("R@1", "R@5"),
        main=Metric("R", 1),
        tunable=False,
    )
    return Dataset(protocol, (Part("all", tuple(pictures), queries),), pictures)


FLAGS = DatasetRow(
    "flags",
    "Flags of two colours, drawn here: an example of a dataset from another package.",
    load,
    titles=("Flags",),
    splits="all.",
    needs_data=False,
    # figures of a paper of one's own, in the form of tapr's evaluate/data/published.json, would stand here
    published=(),
)
