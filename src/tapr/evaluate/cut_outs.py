"""Parts of pictures that take part as pictures of their own, written once into files.

GeneCIS ranks objects cut out of photographs. A query with a box has its part of the reference cut out as well: methods
that compare whole pictures read that, while TAPR reads the box as a search does, by the places inside it.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Query
from tapr.images.decode import decode, read_bytes
from tapr.types import Box
from tapr.utils.files import write_atomically


@dataclass(frozen=True)
class CutOut:
    """A part of a picture file."""

    file: Path
    box: Box  # left, top, right, bottom: parts of its width and height, or pixels where `pixels`
    pixels: bool = False
    square: bool = False  # on a black square

    def write(self, folder: Path) -> Path:
        """The part as a file; one that is there is kept."""
        stat = self.file.stat()
        said = repr((str(self.file.resolve()), stat.st_size, stat.st_mtime_ns, self.box, self.pixels, self.square))
        path = folder / f"{hashlib.sha256(said.encode()).hexdigest()[:24]}.png"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            file = io.BytesIO()
            self._cut().save(file, "PNG")
            write_atomically(path, file.getvalue())
        return path

    def _cut(self) -> Image.Image:
        image = decode(read_bytes(self.file))
        across, down = (1, 1) if self.pixels else image.size
        left, top, right, bottom = self.box
        corners = round(left * across), round(top * down), round(right * across), round(bottom * down)
        box = max(0, corners[0]), max(0, corners[1]), min(image.width, corners[2]), min(image.height, corners[3])
        if box[0] >= box[2] or box[1] >= box[3]:
            raise BadInput(
                f"the box {self.box} is no part of {self.file}, which has {image.width} x {image.height} pixels"
            )
        part = image.crop(box)
        if not self.square or part.width == part.height:
            return part
        side = max(part.size)
        whole = Image.new("RGB", (side, side))
        whole.paste(part, ((side - part.width) // 2, (side - part.height) // 2))
        return whole


def part_name(query: Query) -> str:
    """Return the name of the cut-out part of a query's reference among the pictures."""
    assert query.crop is not None
    return f"{query.reference}[{','.join(f'{value:.6g}' for value in query.crop)}]"


def with_cut_outs(dataset: Dataset, folder: Path) -> Dataset:
    """The dataset with files of all parts that it needs; its pictures must be there."""
    pictures = dict(dataset.pictures)
    for name, part in dataset.cut_outs.items():
        if name in pictures:  # not where it was left out
            pictures[name] = part.write(folder)
    for query in dataset.queries:
        if query.crop is not None:
            pictures[part_name(query)] = CutOut(dataset.pictures[query.reference], query.crop).write(folder)
    return replace(dataset, pictures=pictures) if pictures != dict(dataset.pictures) else dataset
