"""What a write costs: puts and deletes over a gallery of some size, and what the searches after them see of it.

    PYTHONPATH=src:. python -m benchmarks.writes --gallery FOLDER [--sizes 458 20000] [--writes 20]

The engine and the writer of a server, without HTTP, on a gallery that benchmarks/capacity.py makes of the given one.
Every picture has metadata of three columns, as a shop's has. "encode" is the picture's encoding and its caption, which
a write must do anyway; the rest is the cost of the snapshot.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.capacity import enlarged
from PIL import Image

from tapr.gallery import Gallery
from tapr.index.captions import describer
from tapr.options import SearchOptions
from tapr.query.spec import EditSpec
from tapr.server.engine import Engine
from tapr.server.writer import Writer
from tapr.store.catalog import Catalog
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest, catalog_path
from tapr.store.write_operations import Content, Delete, Put

SPEC = EditSpec("a red car in a street", ["red"], ["a street"], ["people"])


def milliseconds(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - begin)


def with_metadata(folder: Path) -> None:
    """A name, a price and a class for every picture: the catalogue is that of a shop."""
    manifest = Manifest.read(folder)
    path = catalog_path(folder, manifest.snapshot)
    catalog = Catalog.open(path, published=False)
    for number, entry in enumerate(catalog.entries()):
        metadata = {"name": f"picture {number}", "price": number % 97 + 0.5, "class": f"class {number % 12}"}
        catalog._db.execute("UPDATE images SET metadata = ? WHERE key = ?", (json.dumps(metadata), entry.key))
    catalog.retype({})
    catalog.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(folder)


def picture(number: int) -> bytes:
    noise = np.random.default_rng(number).integers(0, 255, (30, 40, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize((640, 480)).save(out, "JPEG")
    return out.getvalue()


def measure(folder: Path, writes: int) -> dict[str, list[float]]:
    engine = Engine(Gallery.open(folder), "grounded")
    writer, describe = Writer(engine), describer(engine.encoder)
    times: dict[str, list[float]] = {}

    def encode(content: Content) -> None:
        describe(engine.encoder.encode_images([content.pixels]))

    def search() -> None:
        engine.snapshot().search(SearchOptions.of(spec=SPEC, k=24))

    def timed(kind: str, act: Callable[[], object]) -> None:
        times.setdefault(kind, []).append(milliseconds(act))

    for number in range(writes + 1):  # the first ones load what is loaded late
        if number == 1:
            times.clear()
        content, id_ = Content.of(picture(number), engine.encoder), f"put {number}"
        metadata = {"name": id_, "price": 7.5, "class": "class 1"}
        timed("encode", partial(encode, content))
        timed("put", partial(writer.apply_operations, [Put(id_, content, metadata)]))
        timed("first search after it", search)
        timed("search", search)
        timed("metadata", partial(writer.apply_operations, [Put(id_, None, {**metadata, "price": 8.5})]))
        timed("delete", partial(writer.apply_operations, [Delete(id_)]))
        timed("first search after a delete", search)
    writer.close()
    engine.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description="What a write costs, by the size of the gallery.")
    parser.add_argument("--gallery", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[458, 20_000])
    parser.add_argument("--writes", type=int, default=20)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="writes"))
    print(f"{platform.processor() or platform.machine()}; {arguments.writes} of each, p50 / least, in ms\n")
    columns: dict[int, dict[str, list[float]]] = {}
    try:
        for size in arguments.sizes:
            source, folder = Gallery.open(arguments.gallery), root / str(size)
            enlarged(source, folder, size, source.precision)
            with_metadata(folder)
            columns[size] = measure(folder, arguments.writes)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"| | {' | '.join(f'{size:,} pictures' for size in columns)} |")
    print(f"|---|{'---|' * len(columns)}")
    for kind in next(iter(columns.values())):
        cells = [f"{median(times[kind]):.0f} / {min(times[kind]):.0f}" for times in columns.values()]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
