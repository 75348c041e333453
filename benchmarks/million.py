"""A million pictures' vectors: the photographs of COCO train2017, and crops of them that are made from their vectors.

    python -m benchmarks.million encode PHOTOGRAPHS WORK --part 0/2      # once per process; goes on where it stopped
    python -m benchmarks.million gallery PHOTOGRAPHS WORK GALLERY        # the photographs, with a first stage
    python -m benchmarks.million crops WORK GALLERY LARGER --pictures 1000000
    python -m benchmarks.million queries GALLERY CL-LaSCO_train.json WORK --queries 200

PHOTOGRAPHS is a folder of the 118,287 files. The public repository hai4h/cnn-edge-detection has them at 256 pixels.
They are seen at half the tower's size (benchmarks/half_size.py), which takes a quarter of the time. At full size a
local vector is the mean of 2 x 2 tokens. Here it is the mean of a token and its next ones to the right and below, so
that the 49 vectors of a picture are as much alike as at full size: `compare` prints both, for the same photographs.

A crop is modelled, because encoding 881,713 more takes eight hours of a processor: a window of the 7 x 7 tokens, 4 to 6
wide and high and drawn from the crop's number alone, is stretched to 7 x 7. Its global vector is the photograph's,
moved by a part of the difference of two others', so that a crop is as unlike its photograph as a real one: cosine 0.83,
measured with 100 real crops. Photographs come first in the larger gallery: both hold the same vectors for them.
"""

from __future__ import annotations

import argparse
import hashlib
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: a process per processor, not threads beside
import secrets
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.first_stage import make_queries
from benchmarks.half_size import HalfSizeClip
from numpy.typing import NDArray
from PIL import Image

import tapr
from tapr.encoders.base import Evidence, unit
from tapr.store import layout
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter, keep_subspaces, parts_of, summariser_in, summary_parts
from tapr.store.summary import Subspaces, Summariser
from tapr.types import Float32

CHUNK = 512  # photographs per file of WORK
LOT = 128  # pictures that a process makes at a time
SIDE = 7
MOVED = 0.65  # of the difference of two global vectors

Parts = dict[str, NDArray[Any]]


def encode(pictures: Path, work: Path, part: int, parts: int) -> None:
    files, encoder = sorted(pictures.glob("*.jpg")), HalfSizeClip(threads=1)
    work.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, len(files), CHUNK)):
        done = work / f"{number:05d}.npz"
        if number % parts != part or done.exists():
            continue
        found = encoder.encode_images(
            [encoder.prepare(Image.open(file).convert("RGB")) for file in files[first : first + CHUNK]]
        )
        half = work / f"{number:05d}.{part}.new.npz"
        np.savez(half, g=found.global_vectors.astype(np.float16), l=found.local_vectors.astype(np.float16))
        half.rename(done)


class PooledHalfSizeClip(HalfSizeClip):
    """As the photographs of the gallery are seen."""

    def encode_images(self, prepared: Any) -> Evidence:
        found = super().encode_images(prepared)
        return Evidence(found.global_vectors, pooled(found.local_vectors))


def pooled(tokens: Float32) -> Float32:
    """(N, 49, d) -> (N, 49, d): every token with its next ones to the right and below; at the edges, with itself."""
    grid = np.pad(tokens.reshape(len(tokens), SIDE, SIDE, -1), ((0, 0), (0, 1), (0, 1), (0, 0)), mode="edge")
    return unit((grid[:, :-1, :-1] + grid[:, 1:, :-1] + grid[:, :-1, 1:] + grid[:, 1:, 1:]).reshape(tokens.shape))


def tokens_of(work: Path, number: int) -> Evidence:
    """The photographs of one file, as `encode` left them."""
    with np.load(work / f"{number:05d}.npz") as held:
        return Evidence(held["g"].astype(np.float32), held["l"].astype(np.float32))


def photographs(work: Path, number: int) -> Evidence:
    found = tokens_of(work, number)
    return Evidence(found.global_vectors, pooled(found.local_vectors))


def crops(vectors: Evidence, numbers: NDArray[np.int64], turn: int) -> Evidence:
    """One crop of each picture; `numbers` are the pictures', `turn` says which of their crops."""
    locals_, wholes = np.empty_like(vectors.local_vectors), np.empty_like(vectors.global_vectors)
    for place, number in enumerate(numbers.tolist()):
        rng = np.random.default_rng((23, turn, number))
        (height, width), mirrored = rng.integers(4, SIDE, 2), bool(rng.integers(2))
        top, left = rng.integers(0, SIDE + 1 - height), rng.integers(0, SIDE + 1 - width)
        across = _stretched(left, width)[:: -1 if mirrored else 1]
        grid = vectors.local_vectors[place].reshape(SIDE, SIDE, -1)
        locals_[place] = np.einsum("yr,xc,rcd->yxd", _stretched(top, height), across, grid, optimize=True).reshape(
            SIDE * SIDE, -1
        )
        one, other = vectors.global_vectors[rng.integers(0, len(wholes), 2)]
        wholes[place] = vectors.global_vectors[place] + MOVED * (one - other)
    return Evidence(unit(wholes), unit(locals_))


def _stretched(first: int, length: int) -> Float32:
    """(7, 7): weights that stretch `length` places, from `first` on, to all."""
    at = first + np.linspace(0, length - 1, SIDE)
    return np.asarray(np.maximum(0, 1 - np.abs(at[:, None] - np.arange(SIDE))), np.float32)


def _photograph_parts(task: tuple[Path, int, int, Manifest, Summariser]) -> Iterable[Parts]:
    work, number, turn, manifest, summariser = task
    whole = tokens_of(work, number) if turn else photographs(work, number)
    numbers = np.arange(len(whole.global_vectors)) + number * CHUNK
    out = []
    for first in range(0, len(numbers), LOT):
        lot = slice(first, first + LOT)
        some = Evidence(whole.global_vectors[lot], whole.local_vectors[lot])
        parts = parts_of(crops(some, numbers[lot], turn) if turn else some, manifest)
        out.append(parts | summary_parts(parts, summariser))
    return out


def _made(work: Path, turns: Iterable[int], manifest: Manifest, summariser: Summariser) -> Iterator[Parts]:
    count = len(list(work.glob("?????.npz")))
    tasks = [(work, number, turn, manifest, summariser) for turn in turns for number in range(count)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        waiting = [pool.submit(_photograph_parts, task) for task in tasks[:6]]
        for place in range(len(tasks)):
            if place + 6 < len(tasks):
                waiting.append(pool.submit(_photograph_parts, tasks[place + 6]))
            yield from waiting.pop(0).result()


def gallery(pictures: Path, work: Path, folder: Path) -> None:
    files = sorted(pictures.glob("*.jpg"))
    folder.mkdir(parents=True)
    card, path = HalfSizeClip().card, layout.catalog_path(folder, 0)
    catalog = Catalog.create(path, gallery_id := secrets.token_hex(16))
    manifest = Manifest(
        gallery_id=gallery_id, encoder=card.to_dict(), precision="fp16",
        shard_rows=layout.shard_rows_for(card), snapshot=0, catalog=FileDigest.of(path), first_stage=True,
    )  # fmt: skip
    subspaces = Subspaces.fitted(photographs(work, 0).local_vectors)
    keep_subspaces(catalog, subspaces)
    with ShardWriter(folder, manifest, catalog) as writer:
        for parts in _made(work, [0], manifest, Summariser(subspaces)):
            first = writer.append_parts(parts)
            for row in range(first, first + len(parts[layout.GLOBAL])):
                data = files[row].read_bytes()
                digest, path = hashlib.sha256(data).hexdigest(), files[row]
                catalog.put(Entry(path.name, str(path), len(data), 0, digest, 256, 256, {}, row))
        writer.commit()
    _publish(folder, manifest, catalog)


def larger(work: Path, small: Path, folder: Path, pictures: int) -> None:
    """The same photographs, then crops. Whole shards are shared with the small gallery."""
    manifest = Manifest.read(small)
    folder.mkdir(parents=True)
    for file in small.iterdir():
        if file.suffix == ".npy" and int(file.stem.split("-")[-1]) < manifest.counts["rows"] // manifest.shard_rows:
            os.link(file, folder / file.name)
        elif file.suffix in (".npy", ".sqlite"):
            shutil.copyfile(file, folder / file.name)
    catalog = Catalog.open(layout.catalog_path(folder, manifest.snapshot), published=False)
    summariser = summariser_in(catalog)
    with ShardWriter(folder, manifest, catalog) as writer:
        turns = range(1, 1 + -(-pictures // manifest.counts["rows"]))
        for parts in _made(work, turns, manifest, summariser):
            room = pictures - writer.rows
            if room <= 0:
                break
            first = writer.append_parts({kind: array[:room] for kind, array in parts.items()})
            for row in range(first, writer.rows):
                name = f"crop-{row:07d}.jpg"
                digest = hashlib.sha256(name.encode()).hexdigest()
                catalog.put(Entry(name, f"/nowhere/{name}", 1, 0, digest, 256, 256, {}, row))
        writer.commit()
    _publish(folder, manifest, catalog)


def _publish(folder: Path, manifest: Manifest, catalog: Catalog) -> None:
    counts, path = catalog.counts(), layout.catalog_path(folder, manifest.snapshot)
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path), "counts": counts}).write(folder)
    print(f"{folder}: {counts['rows']:,} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("encode", "gallery", "crops", "queries"))
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--pictures", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    first, second, *third = options.places
    if options.step == "encode":
        part, parts = map(int, options.part.split("/"))
        return encode(first, second, part, parts)
    if options.step == "gallery":
        return gallery(first, second, third[0])
    if options.step == "crops":
        return larger(first, second, third[0], options.pictures)
    opened = tapr.Gallery.open(first, encoder=PooledHalfSizeClip())
    return make_queries(opened, second, third[0], options.queries)


if __name__ == "__main__":
    main()
