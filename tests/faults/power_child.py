"""The program whose power is cut: it writes to a gallery under tests/faults/record.c, and marks what it acknowledged.

python power_child.py GALLERY PICTURES LOG SEED
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


def state(gallery: Gallery) -> dict[str, str]:
    return {entry.id: entry.sha256 for entry in gallery.entries(range(len(gallery)))}


def main() -> None:
    folder, pictures, log, seed = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    make_small()
    dice = random.Random(seed)
    layer: Any = ctypes.CDLL(None)
    gallery = Gallery.open(folder, encoder=FakeEncoder())
    layer.record_begin(str(folder).encode(), log.encode())
    layer.record_mark(json.dumps(state(gallery)).encode())
    put = list[str]()
    for number in range(14):
        draw = dice.random()
        if draw < 0.55 or not put:
            ids = [f"put {number} {n}" for n in range(dice.choice((1, 1, 5)))]
            encoder = gallery.encoder
            gallery.apply([Put(id_, Content.of(picture(dice), encoder), {"n": number}) for id_ in ids])
            put += ids
        elif draw < 0.75:
            gallery.apply([Delete(put.pop(dice.randrange(len(put))))])
        else:
            for _ in range(dice.randint(1, 6)):
                (pictures / f"new{dice.randrange(40)}.png").write_bytes(picture(dice))
            for file in sorted(pictures.iterdir())[: dice.randint(0, 3)]:
                file.unlink()
            gallery.sync()
        layer.record_mark(json.dumps(state(gallery)).encode())  # from here on it is acknowledged


if __name__ == "__main__":
    main()
