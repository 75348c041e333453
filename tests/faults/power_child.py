"""The program whose power is cut: it writes galleries under tests/faults/record.c, and marks what it acknowledged.

python power_child.py FOLDER PICTURES LOG SEED

FOLDER holds the gallery `gallery` when it begins. Backups, galleries made from them and first index runs go beside it.
"""

from __future__ import annotations

import ctypes
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from tapr import Gallery
from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.index import encode
from tapr.store import checksums, compact, layout
from tapr.store.backup import copy_gallery
from tapr.store.saved_searches import Fit, SavedSearch, SavedSearchFile
from tapr.store.write_operations import Content, Delete, Put


def make_small() -> None:
    """Eight rows per shard, three per checksum, a commit every four pictures, compaction often."""
    layout.SHARD_BYTES = 9 * 32 * 2 * 8
    checksums.CHUNK_BYTES = 9 * 32 * 2 * 3
    encode.BATCH = 4
    encode.COMMIT_SECONDS = 0.0
    compact.FEW = 2


def picture(dice: random.Random) -> bytes:
    image = Image.new("RGB", (24, 24), COLOURS[dice.choice(sorted(COLOURS))])
    image.putpixel((0, 0), tuple(dice.randbytes(3)))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


State = dict[str, dict[str, Any]]  # by the gallery's place in the folder
KINDS = ("put", "delete", "sync", "save", "match", "unsave", "backup", "restore", "first index")
WEIGHTS = (8, 3, 4, 3, 3, 1, 3, 2, 2)
STEPS = 24


def state_of(gallery: Gallery) -> dict[str, Any]:
    """Return what a gallery holds: the content of its pictures, and the matches of its saved searches."""
    file = SavedSearchFile(gallery.path)
    return {
        "pictures": {entry.id: entry.sha256 for entry in gallery.entries(range(len(gallery)))},
        "searches": {search.name: [match.id for match in file.matches(search.name)] for search in file.all()},
    }


class Writer:
    """Writes of all kinds, in an order that follows from the seed."""

    def __init__(self, folder: Path, pictures: Path, dice: random.Random) -> None:
        self._folder, self._pictures, self._dice = folder, pictures, dice
        self._gallery = Gallery.open(folder / "gallery", encoder=FakeEncoder())
        self._searches = SavedSearchFile(self._gallery.path)
        self._put = list[str]()
        self.state: State = {"gallery": state_of(self._gallery)}

    def write(self, number: int) -> None:
        kind = self._dice.choices(KINDS, WEIGHTS)[0]
        if kind in ("backup", "restore", "first index"):
            self._make_another(kind, number)
            return
        self._change(kind, number)
        self.state = {**self.state, "gallery": state_of(self._gallery)}

    def _change(self, kind: str, number: int) -> None:
        saved = self._searches.all()
        if kind == "delete" and self._put:
            self._gallery.apply([Delete(self._put.pop(self._dice.randrange(len(self._put))))])
        elif kind == "sync":
            for _ in range(self._dice.randint(1, 6)):
                (self._pictures / f"new{self._dice.randrange(40)}.png").write_bytes(picture(self._dice))
            for file in sorted(self._pictures.iterdir())[: self._dice.randint(0, 3)]:
                file.unlink()
            self._gallery.sync()
        elif kind == "save" or (kind in ("match", "unsave") and not saved):
            search = SavedSearch(f"search {self._dice.randrange(4)}", {"text": "red"}, 0.5, number)
            self._searches.save(search, [("reference", picture(self._dice))], [])
        elif kind == "match":
            fits = [Fit(f"match {number} {n}", f"{number} {n}", 0.9) for n in range(self._dice.randint(1, 5))]
            self._searches.record(self._dice.choice(saved), fits, number)
        elif kind == "unsave":
            self._searches.delete(self._dice.choice(saved).name)
        else:
            ids = [f"put {number} {n}" for n in range(self._dice.choice((1, 1, 5)))]
            encoder = self._gallery.encoder
            self._gallery.apply([Put(id_, Content.of(picture(self._dice), encoder), {"n": number}) for id_ in ids])
            self._put += ids

    def _make_another(self, kind: str, number: int) -> None:
        place = f"{kind}/{number}/new"  # in folders that are new, too
        if kind == "first index":
            state = state_of(Gallery.build(self._folder / place, self._pictures, FakeEncoder(), "both"))
        else:
            backups = [name for name in self.state if name.startswith("backup/")]
            source = self._dice.choice(backups) if kind == "restore" and backups else "gallery"
            copy_gallery(self._folder / source, self._folder / place)
            state = self.state[source]
        self.state = {**self.state, place: state}


def main() -> None:
    folder, pictures, log, seed = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    make_small()
    layer: Any = ctypes.CDLL(None)
    writer = Writer(folder, pictures, random.Random(seed))
    layer.record_begin(str(folder).encode(), log.encode())
    layer.record_mark(json.dumps(writer.state).encode())
    for number in range(STEPS):
        writer.write(number)
        layer.record_mark(json.dumps(writer.state).encode())  # from here on it is acknowledged


if __name__ == "__main__":
    main()
