"""Would a first stage pay in `tapr eval`? One sweep for many queries, beside the first K places proven by stages.

    PYTHONPATH=src:. python -m benchmarks.first_stage_evaluation GALLERY CL-LaSCO_train.json --sizes 1500,5000,12000

Pictures beyond the gallery's are mixtures of two of them. Every edit is the Target and the one Add; its reference is
drawn from the gallery. Milliseconds of the processor per query; positions and scores must be equal.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tapr.encoders.base import Evidence, unit
from tapr.gallery import Gallery
from tapr.query.scoring import DEFAULT_SCORING
from tapr.query.spec import EditSpec
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import top_k_by_summaries
from tapr.search.memory_bank import MemoryBank
from tapr.search.probe_means import score_shared
from tapr.search.reference_weight import decide

BATCH = 256
PLACES = (51, 10)  # tapr eval keeps 50, and the reference may be among the first 51


def pictures(gallery: Gallery, count: int) -> MemoryBank:
    own, dice = gallery.gather(gallery.rows[:count]), np.random.default_rng(5)
    wholes, locals_ = [own.global_vectors], [own.decoded()]
    for start in range(len(own), count, BATCH):
        number = min(BATCH, count - start)
        first, second = dice.integers(0, len(own), (2, number))
        x = dice.uniform(0, 0.35, number).astype(np.float32)[:, None]
        wholes.append(unit((1 - x) * wholes[0][first] + x * wholes[0][second]).astype(np.float16))
        x = x[..., None]
        locals_.append(unit((1 - x) * locals_[0][first] + x * locals_[0][second]).astype(np.float16))
    return MemoryBank.of(np.concatenate(wholes), np.concatenate(locals_)).summarised()


def queries_of(gallery: Gallery, bank: MemoryBank, pairs: Path, count: int) -> list[CompiledQuery]:
    rows = [row for group in json.loads(pairs.read_text()).values() for row in group.values()]
    dice = np.random.default_rng(3)
    dice.shuffle(rows)
    specs = [EditSpec(row["query-text"], [row["query-text"]]) for row in rows[:count]]
    block = bank.gather(dice.integers(0, min(len(gallery), len(bank)), count))
    encoded = [
        EncodedSpec.of(spec, [Evidence(whole[None], local[None])], gallery.encoder)
        for spec, whole, local in zip(
            specs, block.global_vectors.astype(np.float32), block.decoded().astype(np.float32), strict=True
        )
    ]
    decided = decide(DEFAULT_SCORING, specs, np.stack([one.target for one in encoded]), bank)
    return [one.compile(None, TAU, by.continuity) for one, by in zip(encoded, decided, strict=True)]


def measure(bank: MemoryBank, queries: list[CompiledQuery]) -> None:
    begin = time.process_time()
    scores = score_shared(queries, bank)
    full = time.process_time() - begin
    for k in PLACES:
        begin = time.process_time()
        found = top_k_by_summaries(queries, bank, k, choose_kernel())
        staged = time.process_time() - begin
        for row, one in zip(scores, found, strict=True):
            right = np.argsort(-row, kind="stable")[:k]
            assert one.positions.tolist() == right.tolist()
            assert one.scores.tolist() == row[right].tolist()
        read = np.median([one.proof.read for one in found if one.proof])
        each = [f"{1e3 * seconds / len(queries):.1f}" for seconds in (full, staged)]
        print(f"| {len(bank):,} | {len(queries)} | {k} | {each[0]} | {each[1]} | {read:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A full sweep for many queries, beside the first places by stages.")
    parser.add_argument("gallery", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--sizes", default="5000,12000")
    parser.add_argument("--queries", type=int, default=64)
    options = parser.parse_args()
    gallery, sizes = Gallery.open(options.gallery), [int(size) for size in options.sizes.split(",")]
    begin = time.process_time()
    bank = pictures(gallery, max(sizes))
    print(f"{1e3 * (time.process_time() - begin) / len(bank):.1f} ms per picture to make and summarise\n")
    print("| pictures | queries | K | full | by stages | read in full (median) |\n|---|---|---|---|---|---|")
    for size in sizes:
        part = replace(bank, rows=bank.rows[:size], block=bank.block.take(slice(0, size), 0))
        measure(part, queries_of(gallery, part, options.pairs, options.queries))


if __name__ == "__main__":
    main()
