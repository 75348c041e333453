"""All controls on random vectors of CIRR's size: python benchmarks/evaluate.py [--queries 4181] [--pictures 2297].

Prints seconds, processor time, the largest resident memory, and the cost of all controls against TAPR alone.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from tapr.encoders.base import EncoderCard, Evidence, Float32, unit
from tapr.encoders.fake import FakeEncoder
from tapr.encoders.remembering import RememberingEncoder
from tapr.evaluate.controls import CONTROLS
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run import Scene, run_controls
from tapr.evaluate.theta import FIXED
from tapr.match.memory_bank import MemoryBank
from tapr.methods import Features, RecordSet

LOCALS, DIM, ATOMS = 49, 512, 6


class RandomEncoder(FakeEncoder):
    """Phrases as random unit vectors of CLIP's size."""

    def __init__(self) -> None:
        super().__init__()
        self.card = EncoderCard("random", "", DIM, (7, 7), "tokens", 32, "crop")
        self._draw = np.random.default_rng(1)

    def encode_texts(self, texts: object) -> Float32:
        return unit(self._draw.standard_normal((len(texts), DIM)))  # type: ignore[arg-type]

    def encode_images(self, prepared: object) -> Evidence:
        raise NotImplementedError


def scene(queries: int, pictures: int) -> Scene:
    draw = np.random.default_rng(0)
    bank = MemoryBank.of(
        unit(draw.standard_normal((pictures, DIM), dtype=np.float32)),
        unit(draw.standard_normal((pictures, LOCALS, DIM), dtype=np.float32)),
    )
    names = tuple(f"picture-{number}" for number in range(pictures))
    asked, payloads = [], {}
    for number in range(queries):
        places = draw.choice(pictures, 6, replace=False)
        members = tuple(names[place] for place in places)
        asked.append(Query(str(number), members[0], "edit", (members[1],), members))
        atoms = [f"atom {number} {place}" for place in range(ATOMS)]
        spec = {"target": f"target {number}", "add": atoms[:2], "preserve": atoms[2:4], "remove": atoms[4:]}
        payloads[str(number)] = {"spec": spec}
    protocol = Protocol(
        "random", "val", f"{pictures} random pictures", False, "none",
        metrics("R@1", "R@5", "R@10", "R@50", "Rsubset@1"), Metric("R", 1),
    )  # fmt: skip
    dataset = Dataset(protocol, (Part("all", names, tuple(asked)),), {name: Path(name) for name in names})
    rows = {name: row for row, name in enumerate(names)}
    features = Features.of(RememberingEncoder(RandomEncoder()), bank, rows, names)
    return Scene(dataset, (features,), RecordSet(payloads, "random"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=4181)
    parser.add_argument("--pictures", type=int, default=2297)
    asked = parser.parse_args()
    made = scene(asked.queries, asked.pictures)
    begin = time.perf_counter(), time.process_time()
    results = run_controls(CONTROLS, made, FIXED)
    every = time.perf_counter() - begin[0]
    used = time.process_time() - begin[1]  # of all threads: what a busy machine does not change much
    begin = time.perf_counter(), time.process_time()
    run_controls((), made, FIXED)
    plain = time.process_time() - begin[1]
    chance = 100 / (asked.pictures - 1)
    full = results[0].outcome
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{asked.queries} queries x {asked.pictures} pictures, {LOCALS} x {DIM}, {ATOMS} atoms a query")
    print(f"all {len(results)} variants: {every:.1f} s, {used:.1f} s of processor time; peak {peak:.2f} GB")
    print(f"R@1 {100 * full.mean(Metric('R', 1)):.3f} % (chance {chance:.3f} %)")
    print(f"ratio: all controls cost {used / plain:.2f} x the processor time of TAPR alone")


if __name__ == "__main__":
    main()
