"""A whole evaluation on random vectors of CIRR's size: python benchmarks/evaluate.py [--queries N] [--pictures N].

Prints seconds, processor time and the largest resident memory of all methods and all controls, and the cost of all
controls against TAPR alone. With `--digest` also a hash of every rank, to see whether a change of code changed any.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import EncoderCard, Evidence, Float32, unit
from tapr.encoders.fake import FakeEncoder
from tapr.encoders.remembering import RememberingEncoder
from tapr.evaluate.controls import CONTROLS
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run import Scene, run_controls, run_method
from tapr.evaluate.theta import FIXED
from tapr.match.memory_bank import MemoryBank
from tapr.methods import METHODS, Features, RecordSet, make_method
from tapr.methods.ldre import CAPTIONS
from tapr.methods.stitch import DESCRIPTIONS

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


def others(number: int, atoms: list[str]) -> dict[str, Any]:
    """Records of the compared systems, of their usual sizes."""
    captions, edited = ([f"{what} {number} {place}" for place in range(CAPTIONS)] for what in ("caption", "edited"))
    target = {"description": edited[0], "target": edited[1]}
    return {
        "cirevl": {"caption": captions[0], **target},
        "osrcir": {"thoughts": "a", "reflections": "b", **target},
        "ldre": {"captions": captions, "edited": edited},
        "soft": {"prescriptive": [atoms[0]], "proscriptive": [atoms[-1]]},
        "cotmr": {"existent": atoms[:4], "nonexistent": atoms[4:], **target},
        "sdr-cir": target,
        "stitch": {"descriptions": edited[:DESCRIPTIONS]},
    }


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
        asked.append(Query(str(number), members[0], f"edit {number}", (members[1],), members))
        atoms = [f"atom {number} {place}" for place in range(ATOMS)]
        spec = {"target": f"target {number}", "add": atoms[:2], "preserve": atoms[2:4], "remove": atoms[4:]}
        payloads[str(number)] = {"spec": spec, **others(number, atoms)}
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
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--no-methods", action="store_true")
    asked = parser.parse_args()
    made = scene(asked.queries, asked.pictures)
    digest = hashlib.sha256()
    whole = [0.0, 0.0]
    for name in () if asked.no_methods else METHODS:
        begin = time.perf_counter(), time.process_time()
        result = run_method(make_method(name, "CIRR"), made)
        took = time.perf_counter() - begin[0], time.process_time() - begin[1]
        whole = [whole[0] + took[0], whole[1] + took[1]]
        digest.update(repr((name, result.top)).encode())
        print(f"{name:12} {took[0]:7.1f} s, {took[1]:7.1f} s of processor time", flush=True)
    begin = time.perf_counter(), time.process_time()
    results = run_controls(CONTROLS, made, FIXED)
    every = time.perf_counter() - begin[0]
    used = time.process_time() - begin[1]  # of all threads: what a busy machine does not change much
    digest.update(repr([(one.name, one.outcome.places) for one in results]).encode())
    begin = time.perf_counter(), time.process_time()
    run_controls((), made, FIXED)
    plain = time.process_time() - begin[1]
    chance = 100 / (asked.pictures - 1)
    full = results[0].outcome
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{asked.queries} queries x {asked.pictures} pictures, {LOCALS} x {DIM}, {ATOMS} atoms a query")
    print(f"all {len(results)} variants: {every:.1f} s, {used:.1f} s of processor time; peak {peak:.2f} GB")
    print(f"all methods and controls: {whole[0] + every:.1f} s, {whole[1] + used:.1f} s of processor time")
    print(f"R@1 {100 * full.mean(Metric('R', 1)):.3f} % (chance {chance:.3f} %)")
    if asked.digest:
        print(f"sha256 of all ranks: {digest.hexdigest()}")
    print(f"ratio: all controls cost {used / plain:.2f} x the processor time of TAPR alone")


if __name__ == "__main__":
    main()
