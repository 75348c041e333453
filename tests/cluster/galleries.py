"""Galleries of flags for the cluster's tests, and what makes two of them the same."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from tapr import Gallery, Ranking
from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.encoders.fake import COLOURS
from tapr.store import layout
from tapr.store.block import Precision
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import FileDigest
from tapr.store.layout import MANIFEST, Manifest
from tapr.store.shards import ShardWriter
from tests.pictures import flag, png

DIM = 512


def write_pictures(folder: Path, count: int = 60, side: int = 48) -> Path:
    """Flags of random colours; some twice under other names, and one file that is no picture."""
    folder.mkdir(parents=True)
    chance = random.Random(5)
    for number in range(count):
        colours = [chance.choice(list(COLOURS)) for _ in range(chance.choice((1, 2, 3)))]
        (folder / f"{number:03d}.png").write_bytes(png(flag(*colours, size=(side, side))))
    (folder / "twice.png").write_bytes((folder / "005.png").read_bytes())
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


def build(folder: Path, precision: Precision = "both") -> Gallery:
    return Gallery.build(folder / precision, write_pictures(folder / "pictures"), "fake", precision)


def build_wide(folder: Path, pictures: int = 60) -> Gallery:
    """Random vectors as long as a real encoder's, with a first stage: its basis alone has a megabyte."""
    rng = np.random.default_rng(1)
    card = EncoderCard("fake", "0" * 64, DIM, (1, 3), "tokens", 32, "crop")
    folder.mkdir(parents=True)
    path = layout.catalog_path(folder, 0)
    catalog = Catalog.create(path, "wide")
    manifest = Manifest(
        gallery_id="wide", encoder=card.to_dict(), precision="fp16",
        shard_rows=25, snapshot=0, catalog=FileDigest.of(path),
    )  # fmt: skip
    with ShardWriter(folder, manifest, catalog) as shards:
        local = unit(rng.standard_normal((pictures, 3, DIM)))
        shards.append(Evidence(unit(rng.standard_normal((pictures, DIM))), local))
        for row in range(pictures):
            catalog.put(Entry(f"{row}.png", f"/nowhere/{row}.png", 0, 0, f"{row:064d}", 1, 1, row=row))
        shards.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(folder)
    Gallery.add_first_stage(folder)
    return Gallery.open(folder)


def content(folder: Path) -> dict[str, str]:
    """What a gallery's files hold, but for the number it was born with; a catalogue by its statements."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    own = manifest["gallery_id"]
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".sqlite":
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            data = "\n".join(db.iterdump()).encode()
            db.close()
        elif path.name == MANIFEST:  # the sums of catalogue and manifest follow from that number
            data = json.dumps({**manifest, "catalog": None, "sha256": None}).encode()
        elif path.name.startswith(".lock"):
            continue
        else:
            data = path.read_bytes()
        found[path.name] = hashlib.sha256(data.replace(own.encode(), b"own")).hexdigest()
    return found


def said(ranking: Ranking) -> dict[str, Any]:
    """All of an answer that must not depend on where it was found."""
    answer = ranking.to_dict()
    for name in ("kernel", "rescored", "seconds"):
        del answer[name]
    return answer
