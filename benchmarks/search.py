"""One search from end to end over a made-up bank: reference, factorizer, phrases, matching, reasons.

    python benchmarks/search.py [--pictures 20000] [--precision fp16 both] [--rounds 7]

The bank holds random unit vectors of clip-b16's shape; the reference is a real file, the edit goes through `grounded`.
Prints the median of each part in milliseconds, with everything loaded before, and the whole.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import tapr
from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.encoders.registry import load_encoder
from tapr.store import layout
from tapr.store.block import PRECISIONS, Precision
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter

EDIT = "the same at night, with two birds and without the text"
BATCH = 500


def make_bank(folder: Path, card: EncoderCard, pictures: int, precision: Precision) -> None:
    """Random vectors written as an index run would write them."""
    folder.mkdir()
    path = layout.catalog_path(folder, 0)
    catalog = Catalog.create(path, "made up")
    manifest = Manifest(
        gallery_id="made up",
        encoder=card.to_dict(),
        precision=precision,
        shard_rows=layout.shard_rows_for(card),
        snapshot=0,
        catalog=FileDigest.of(path),
    )
    rng = np.random.default_rng(0)
    with ShardWriter(folder, manifest, catalog) as shards:
        for start in range(0, pictures, BATCH):
            count = min(BATCH, pictures - start)
            local = unit(rng.standard_normal((count, card.locals_count, card.dim), np.float32))
            first = shards.append(Evidence(unit(rng.standard_normal((count, card.dim), np.float32)), local))
            for row in range(first, first + count):
                catalog.put(Entry(f"{row}.jpg", f"/made-up/{row}.jpg", 1, 1, f"{row:064x}", row=row))
        shards.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(folder)


def measure(gallery: tapr.Gallery, reference: Path, rounds: int) -> None:
    tapr.search(gallery, reference, EDIT)  # loads towers, tags and the bank's pages
    laps: dict[str, list[float]] = {}
    for _ in range(rounds):
        begin = time.perf_counter()
        ranking = tapr.search(gallery, reference, EDIT)
        seconds = {**ranking.seconds, "whole": time.perf_counter() - begin}
        for name, value in seconds.items():
            laps.setdefault(name, []).append(1000 * value)
    parts = "  ".join(f"{name} {statistics.median(values):.0f}" for name, values in laps.items())
    bank = f"{len(gallery):,} pictures, {gallery.precision}, {ranking.kernel}, {len(ranking.query.probes)} probes"
    print(f"{bank}, ms: {parts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["fp16", "both"])
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    encoder = load_encoder()
    with tempfile.TemporaryDirectory() as scratch:
        reference = Path(scratch, "reference.jpg")
        colours = np.random.default_rng(1).integers(0, 255, (30, 40, 3), np.uint8)
        Image.fromarray(colours).resize((1600, 1200)).save(reference)
        for precision in arguments.precision:
            folder = Path(scratch, precision)
            make_bank(folder, encoder.card, arguments.pictures, precision)
            measure(tapr.Gallery.open(folder, encoder=encoder), reference, arguments.rounds)


if __name__ == "__main__":
    main()
