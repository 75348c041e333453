"""What a server keeps after many writes and searches: the snapshot in use, and nothing that grows with their number."""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from pathlib import Path

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.options import SearchOptions
from tapr.query.spec import EditSpec
from tapr.server.engine import Engine
from tapr.server.pictures import Picture
from tapr.server.writer import Writer
from tapr.store.catalog import Catalog
from tapr.store.shards import ShardReader
from tapr.store.write_operations import Content, Delete, Put
from tests.pictures import flag, png
from tests.server.conftest import ColourFactorizer

RED = EditSpec("a red picture", ["red"])


def living() -> dict[str, int]:
    re.purge()  # a cache of its own, which other tests have filled
    gc.collect()
    kinds = Gallery, Catalog, ShardReader, re.Pattern
    counts = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in kinds)  # no stand-in is asked
    open_files = Path("/proc/self/fd")
    maps = Path("/proc/self/maps")
    return {
        **counts,
        "open files": len(os.listdir(open_files)) if open_files.exists() else 0,
        "mapped shards": maps.read_text().count(".npy") if maps.exists() else 0,
    }


def test_old_snapshots_are_released(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for colour in ("red", "blue"):
        flag(colour).save(tmp_path / "pictures" / f"{colour}.png")
    engine = Engine(Gallery.build(tmp_path / "bank", tmp_path / "pictures", FakeEncoder()), ColourFactorizer())
    writer = Writer(engine)

    def write_and_search(number: int) -> None:
        content = Content.of(png(flag("black", size=(40 + number, 30))), engine.encoder)
        writer.apply_operations([Put(f"put {number}", content, {"price": number})])
        red = Picture(id="red.png")
        engine.snapshot().search(SearchOptions.of(reference=red, spec=RED, k=2, where="price >= 0"))
        engine.snapshot().search(SearchOptions.of(spec=RED, k=2))
        if number % 2:
            writer.apply_operations([Delete(f"put {number}")])

    for number in range(8):
        write_and_search(number)
    before = living()
    for number in range(8, 40):
        write_and_search(number)
    after = living()
    assert engine.gallery.manifest.snapshot == 61, "every write was a snapshot"
    writer.close()
    engine.close()
    few = 8  # of 48 writes: what another test left running may open or compile one
    assert {kind: count for kind, count in after.items() if count > before[kind] + few} == {}
