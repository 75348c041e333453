"""How fast `clip-b16` encodes, and what each local-vector extractor costs beside the simplest, `value`.

    python benchmarks/encode.py [--pictures 8] [--rounds 5]

The ratios are the result: each picture goes through every extractor in turn, on one thread, and of each its least CPU
time counts, so that a machine that others use too tells nearly the same as a quiet one. The rate is of all threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.image_tower import ImageTower
from tapr.encoders.local_tokens import EXTRACTORS
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch
from tapr.utils.threads import thread_count

Step = Callable[[NDArray[np.uint8]], object]  # what is done for one picture
PHRASES = [f"a photo of {count} red apples on a wooden table" for count in range(32)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of clip-b16 and of its extractors.")
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    shape = (arguments.pictures, 224, 224, 3)
    pixels = list(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    file = fetch(CLIP_B16_IMAGE_TOWER, print)
    steps: dict[str, Step] = {name: ImageTower(file, name).encode for name in EXTRACTORS}
    seconds = {name: np.full((arguments.rounds, arguments.pictures), np.inf) for name in steps}
    for step in steps.values():
        step(pixels[0])  # to warm up
    for turn in range(arguments.rounds):
        for at, picture in enumerate(pixels):
            for name, step in steps.items():
                seconds[name][turn, at] = timed(partial(step, picture), time.thread_time)
    least = {name: times.min(axis=0).mean() for name, times in seconds.items()}
    print(f"{'':12} {'ms per picture':>14} {'to value':>15}   (one thread, {arguments.pictures} pictures)")
    for name, time_ in least.items():
        print(f"{name:12} {time_ * 1e3:14.1f} {time_ / least['value']:15.3f}")

    encoder = ClipOnnxEncoder()
    encoder.encode_texts(PHRASES[:1])
    encoder.encode_images(pixels[:1])
    rate = arguments.pictures / best(lambda: encoder.encode_images(pixels), arguments.rounds)
    one = best(lambda: encoder.encode_texts(PHRASES[:1]), 4 * arguments.rounds)
    many = best(lambda: encoder.encode_texts(PHRASES), arguments.rounds)
    print(f"{thread_count()} threads, {encoder.card.extractor}: {rate:.1f} pictures/s")
    print(f"one phrase {one * 1e3:.1f} ms, {len(PHRASES)} phrases {many * 1e3:.0f} ms")


def best(run: Callable[[], object], rounds: int) -> float:
    return min(timed(run, time.perf_counter) for _ in range(rounds))


def timed(run: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    run()
    return clock() - started


if __name__ == "__main__":
    main()
