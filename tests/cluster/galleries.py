"""Galleries of flags for the cluster's tests, and what makes two of them the same."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

from tapr import Gallery, Ranking
from tapr.encoders.fake import COLOURS
from tapr.store.block import Precision
from tapr.store.layout import MANIFEST
from tests.pictures import flag, png


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
