"""What a sketch saves (search/kernels/sketch.py): searches with it and without, beside the limits of this machine.

    python benchmarks/sketch.py [--gallery FOLDER] [--pictures 20000] [--rounds 7]

Queries are real: pictures of the gallery (of the demo's, by default) with edits, by the default factorizer and score.
A larger gallery than there is has mixtures of two of its pictures and of noise (capacity.py). Every answer with a
sketch is compared with the one without: positions and scores, to the last bit. All take turns; medians are printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from benchmarks.capacity import EDITS, MADE_UP, enlarged, processor
from benchmarks.match import COPIED, Calls, interleaved, limit_calls

from tapr import demo
from tapr.factorize.registry import load_factorizer
from tapr.gallery import Gallery
from tapr.query.open_reference import open_reference
from tapr.query.scoring import DEFAULT_SCORING
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.search import topk
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.sketch import sketch_of
from tapr.search.reference_weight import decide
from tapr.search.topk import TopK, top_k_many
from tapr.store.block import PRECISIONS
from tapr.utils.threads import thread_count

K, COMPANY = 24, 8


def real_queries(gallery: Gallery, count: int) -> list[CompiledQuery]:
    dice, ids = random.Random(0), [id_ for id_ in gallery.ids() if not id_.startswith(MADE_UP)]
    factorizer, found = load_factorizer("grounded", encoder=gallery.encoder), []
    for number in range(count):
        entry = gallery.find(dice.choice(ids))
        assert entry is not None
        reference = open_reference(entry.path, gallery.encoder, gallery)
        spec = factorizer.factorize(reference, EDITS[number % len(EDITS)]).spec
        encoded = EncodedSpec.of(spec, reference.evidence, gallery.encoder)
        (decided,) = decide(DEFAULT_SCORING, [spec], encoded.target[None], gallery)
        found.append(encoded.compile(None, TAU, decided.continuity))
    return found


def without(queries: Sequence[CompiledQuery], gallery: Gallery, kernel: Kernel) -> list[TopK]:
    with mock.patch.object(topk, "sketches_of", return_value=None):
        return top_k_many(queries, gallery, K, kernel)


def measure(gallery: Gallery, queries: list[CompiledQuery], kernel: Kernel, limits: Calls, rounds: int) -> None:
    one = queries[:1]
    new, old = top_k_many(queries, gallery, K, kernel), without(queries, gallery, kernel)
    alone = [top_k_many([query], gallery, K, kernel)[0] for query in queries]
    for answers in (new, alone):
        for answer, wanted in zip(answers, old, strict=True):
            assert (answer.positions == wanted.positions).all()
            assert (answer.scores == wanted.scores).all()
    calls: Calls = {
        "one, sketched": lambda: top_k_many(one, gallery, K, kernel),
        "one, without": lambda: without(one, gallery, kernel),
        "company, sketched": lambda: top_k_many(queries, gallery, K, kernel),
        "company, without": lambda: without(queries, gallery, kernel),
    }
    found = interleaved(calls | limits, rounds)
    stored = sum(block.local_codes.nbytes if block.local_codes is not None else 0 for block in gallery.blocks())
    if gallery.precision == "fp16":
        stored = sum(block.local_vectors.nbytes for block in gallery.blocks() if block.local_vectors is not None)
    copied = found["copy"]
    read = 1e3 * stored / (2 * COPIED / (copied.wall / 1e3))  # reading alone, at the rate of a copy
    percent_read = [100 * (answer.rescored or 0) / len(gallery) for answer in (*new, *alone)]
    print(f"\n{len(gallery):,} pictures, {gallery.precision}, {kernel.name}, {thread_count()} threads, top {K}")
    print("| | ms | processor ms | without a sketch / with |")
    print("|---|---|---|---|")
    for name, per in (("one", 1), ("batch", COMPANY)):
        slow, fast = found[f"{name}, without"], found[f"{name}, sketched"]
        label = "one query" if per == 1 else f"{per} queries, each"
        print(f"| {label} | {fast.wall / per:.1f} | {fast.processor / per:.1f} | {slow.wall / fast.wall:.1f} |")
        print(f"| the same, without | {slow.wall / per:.1f} | {slow.processor / per:.1f} | |")
    print(f"| reading {stored / 1e6:.0f} MB once, at the rate of a copy | {read:.1f} | | |")
    if gallery.precision != "int8":
        print(
            f"read exactly: {np.mean(percent_read):.2f} % of the pictures, at most {max(percent_read):.2f} %",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gallery", type=Path)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(thread_count())
    limits = limit_calls(torch)
    kernel = choose_kernel()
    with tempfile.TemporaryDirectory() as scratch:
        if given.gallery is None:
            demo.write_table(Path(scratch, "emoji.jsonl"))
            Gallery.build(Path(scratch, "emoji"), Path(scratch, "emoji.jsonl"))
        source = Gallery.open(given.gallery or Path(scratch, "emoji"))
        print(f"{processor()}, encoder {source.card.name} ({source.card.extractor})")
        queries = real_queries(source, COMPANY)
        for alone in (True, False):
            sketches = [sketch_of(query, alone=alone) for query in queries]
            counts = [f"{len(one.words.weights)} + {len(one.directions)}" for one in sketches]
            print(f"{'alone' if alone else 'in batch'}: words + directions {', '.join(counts)}")
        print(f"instead of {', '.join(str(np.count_nonzero(query.weights)) for query in queries)} probes")
        for precision in given.precisions:
            same = len(source) == given.pictures and source.precision == precision
            folder = Path(scratch, precision)
            gallery = source if same else Gallery.open(enlarged(source, folder, given.pictures, precision))
            measure(gallery, queries, kernel, limits, given.rounds)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
