"""How fast `clip-b16` encodes, and what each local-vector extractor adds to the tower alone.

    python benchmarks/encode.py [--pictures 32] [--rounds 5]

Times are of one run on one machine, taken in turn, the best of all rounds; the ratios are the result.
CPU time tells the truth on a machine that others use too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tapr.encoders import blas
from tapr.encoders.base import Float32
from tapr.encoders.clip_onnx import ClipOnnxEncoder, ImageTower, usable_cores
from tapr.encoders.local_tokens import EXTRACTORS
from tapr.encoders.onnx_file import OnnxFile
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch

Step = Callable[[NDArray[np.uint8]], tuple[Float32, Float32]]  # what is done for one picture


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of clip-b16 and of its extractors.")
    parser.add_argument("--pictures", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=usable_cores())
    arguments = parser.parse_args()
    pixels = list(np.random.default_rng(0).integers(0, 256, (arguments.pictures, 224, 224, 3), np.uint8))
    phrases = [f"a photo of {count} red apples on a wooden table" for count in range(32)]

    started = time.perf_counter()
    file = OnnxFile.read(fetch(CLIP_B16_IMAGE_TOWER, print))
    towers = {name: ImageTower(file, name) for name in EXTRACTORS}
    steps: dict[str, Step] = {"tower alone": towers["tokens"].run}
    steps |= {name: tower.encode for name, tower in towers.items()}
    print(f"{len(towers)} image towers loaded in {time.perf_counter() - started:.1f} s")

    def encode(step: Step) -> None:
        with blas.one_thread(), ThreadPoolExecutor(arguments.threads) as pool:
            list(pool.map(step, pixels))

    for step in steps.values():
        encode(step)  # to warm up
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            times[name].append(timed(partial(encode, step)))
    best = {name: [min(column) for column in zip(*rounds, strict=True)] for name, rounds in times.items()}
    wall_alone, cpu_alone = best["tower alone"]
    print(f"{arguments.pictures} pictures, {arguments.threads} threads, best of {arguments.rounds} rounds")
    print(f"{'':12} {'pictures/s':>10} {'wall / alone':>13} {'CPU / alone':>12}")
    for name, (wall, cpu) in best.items():
        print(f"{name:12} {arguments.pictures / wall:10.1f} {wall / wall_alone:13.3f} {cpu / cpu_alone:12.3f}")

    encoder = ClipOnnxEncoder(threads=arguments.threads)
    encoder.encode_texts(phrases[:1])
    one = min(timed(lambda: encoder.encode_texts(phrases[:1]))[0] for _ in range(20))
    many = min(timed(lambda: encoder.encode_texts(phrases))[0] for _ in range(arguments.rounds))
    print(f"one phrase {one * 1e3:.1f} ms, {len(phrases)} phrases {many * 1e3:.0f} ms")


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
