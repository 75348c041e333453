"""A whole evaluation on random vectors: every method, every control; beside it the grid of theta.

    python benchmarks/evaluate.py            CIRR's size: 4,181 queries x 2,297 pictures of 49 x 512
    python benchmarks/evaluate.py --circo    CIRCO's size: 220 queries x 123,403 pictures of 64 x 768, for a GPU

Prints seconds of each part, processor time, the largest resident memory, and the cost of all controls against TAPR
alone. `--controls-only` leaves the methods and the grid out; `--limits` adds what sgemm takes.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.encoders.caching import CachingEncoder
from tapr.encoders.fake import FakeEncoder
from tapr.evaluate.controls import CONTROLS, variants
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run import Experiment, can_share, grid, run_method, run_shared, run_variants
from tapr.evaluate.theta import FIXED, GRID
from tapr.methods import METHODS, Features, RecordSet, make_method
from tapr.methods.ldre import CAPTIONS
from tapr.methods.record_kinds import derive
from tapr.query.spec import EditSpec
from tapr.search.kernels.choose import choose_kernel
from tapr.search.memory_bank import MemoryBank
from tapr.store.block import Block
from tapr.types import Float32

ATOMS = 6
TOGETHER = ("maxsim", "tapr-paper", "tapr")  # with the controls, where the kernel lets them share what is matched


class RandomEncoder(FakeEncoder):
    """Phrases as random unit vectors of CLIP's size."""

    def __init__(self, card: EncoderCard) -> None:
        super().__init__()
        self.card = card
        self._draw = np.random.default_rng(1)

    def encode_texts(self, texts: object) -> Float32:
        return unit(self._draw.standard_normal((len(texts), self.card.dim)))  # type: ignore[arg-type]

    def encode_images(self, prepared: object) -> Evidence:
        raise NotImplementedError


def random_bank(pictures: int, card: EncoderCard) -> MemoryBank:
    """fp16 unit vectors, drawn on a GPU where there is one: CIRCO's size is 6 billion numbers."""
    shape = (pictures, card.locals_count + 1, card.dim)
    try:
        import torch

        there = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
    except ImportError:
        there = ""
    draw = np.random.default_rng(0)
    rows = np.empty(shape, np.float16)
    for start in range(0, pictures, 2048):
        part = (min(2048, pictures - start), *shape[1:])
        if there == "cuda":
            vectors = torch.nn.functional.normalize(torch.randn(part, device=there), dim=-1).half().cpu().numpy()
        else:
            vectors = unit(draw.standard_normal(part, dtype=np.float32))
        rows[start : start + 2048] = vectors
    block = Block(0, np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1:]))
    return MemoryBank(card, "fp16", block, np.arange(pictures))


def experiment(queries: int, pictures: int, card: EncoderCard) -> Experiment:
    draw = np.random.default_rng(0)
    bank = random_bank(pictures, card)
    names = tuple(f"picture-{number}" for number in range(pictures))
    asked, payloads = [], {}
    for number in range(queries):
        places = draw.choice(pictures, 6, replace=False)
        members = tuple(names[place] for place in places)
        asked.append(Query(str(number), members[0], f"edit {number}", (members[1],), members))
        atoms = [f"atom {number} {place}" for place in range(ATOMS)]
        spec = EditSpec(f"target {number}", tuple(atoms[:2]), tuple(atoms[2:4]), tuple(atoms[4:]))
        drawn = [(f"caption {number} {place}", f"edited {number} {place}") for place in range(CAPTIONS)]
        payloads[str(number)] = derive(spec, f"edit {number}", f"caption {number}", drawn)
    protocol = Protocol(
        "random", "val", f"{pictures} random pictures", False, "none",
        metrics("R@1", "R@5", "R@10", "R@50", "Rsubset@1"), Metric("R", 1),
    )  # fmt: skip
    dataset = Dataset(protocol, (Part("all", names, tuple(asked)),), {name: Path(name) for name in names})
    rows = {name: row for row, name in enumerate(names)}
    features = Features.of(CachingEncoder(RandomEncoder(card)), bank, rows, names)
    return Experiment(dataset, (features,), RecordSet(payloads, "random"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=4181)
    parser.add_argument("--pictures", type=int, default=2297)
    parser.add_argument("--circo", action="store_true")
    parser.add_argument("--controls-only", action="store_true")
    parser.add_argument("--limits", action="store_true", help="also what a plain product of matrices takes")
    asked = parser.parse_args()
    queries, pictures = (220, 123_403) if asked.circo else (asked.queries, asked.pictures)
    grid_, dim = ((8, 8), 768) if asked.circo else ((7, 7), 512)
    begin = time.perf_counter()
    made = experiment(queries, pictures, EncoderCard("random", "", dim, grid_, "tokens", 32, "crop"))
    print(f"{queries} queries x {pictures} pictures, {grid_[0] * grid_[1]} x {dim}, {ATOMS} atoms per query; kernel "
          f"{choose_kernel().name}; vectors drawn in {time.perf_counter() - begin:.0f} s (not counted)")  # fmt: skip
    begin = time.perf_counter()
    tapr = [make_method(name) for name in TOGETHER]
    # random vectors have no captions, and no pictures to compose with words
    compared = [name for name in METHODS if not (METHODS[name].reads_captions or METHODS[name].composes)]
    if not asked.controls_only:
        for name in compared:
            if name not in TOGETHER or not can_share(made):
                method = make_method(name)
                timed(f"method {name}", lambda method=method: run_method(method, made))  # type: ignore[misc]
    if can_share(made) and not asked.controls_only:
        what = f"{', '.join(TOGETHER)} and {len(variants(CONTROLS))} variants in one pass"
        (_, results), used = timed(what, lambda: run_shared(tapr, variants(CONTROLS), made, FIXED))
    else:
        results, used = timed("controls", lambda: run_variants(variants(CONTROLS), made, FIXED))
    whole = time.perf_counter() - begin
    methods = 0 if asked.controls_only else len(compared)
    print(f"whole: {methods} methods and {len(results)} variants of TAPR in {whole:.1f} s", flush=True)
    if asked.limits:
        limits(made)
    if not asked.controls_only:
        timed(f"beside it, the grid of {len(GRID)} thetas", lambda: grid(made))
    _, plain = timed("beside it, TAPR alone", lambda: run_variants(variants(()), made, FIXED))
    full = results[0].outcome
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak {peak:.2f} GB")
    print(f"R@1 {100 * full.mean(Metric('R', 1)):.3f} % (chance {100 / (pictures - 1):.3f} %)")
    print(f"ratio: all controls cost {used / plain:.2f} x the processor time of TAPR alone")


def limits(made: Experiment) -> None:
    """The same dot products as one plain product of matrices in float32 and nothing else: no program is faster."""
    bank = made.features[0].bank
    rows = bank.gather(bank.rows[:64]).decoded().astype(np.float32).reshape(-1, bank.card.dim)
    probes = np.random.default_rng(2).standard_normal((bank.card.dim, 2048), dtype=np.float32)
    rows @ probes
    begin = time.perf_counter()
    for _ in range(20):
        rows @ probes
    rate = 20 * 2 * rows.size * probes.shape[1] / (time.perf_counter() - begin)
    each = 2 * len(bank) * bank.card.locals_count * bank.card.dim  # of one probe
    queries = made.dataset.queries
    references = len({query.reference for query in queries}) * bank.card.locals_count
    for name, count in (
        (
            f"the pass: {references:,} probes of references, {ATOMS * len(queries):,} atoms",
            references + ATOMS * len(queries),
        ),
        ("MaxSim's sentences, in the same pass", len(queries)),
        ("STiTch", 5 * len(queries)),
    ):
        print(f"limit, sgemm at {rate / 1e9:.0f} GFLOP/s: {name}: {count * each / rate:.1f} s", flush=True)


def timed(name: str, work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and its processor time: of all threads, what a busy machine does not change much."""
    begin = time.perf_counter(), time.process_time()
    found = work()
    used = time.process_time() - begin[1]
    print(f"{name}: {time.perf_counter() - begin[0]:.1f} s, {used:.1f} s of processor time", flush=True)
    return found, used


if __name__ == "__main__":
    main()
