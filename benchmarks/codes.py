"""What rotating vectors before they become int8 codes is worth, on the vectors of a real gallery.

    python benchmarks/codes.py GALLERY [--k 10] [--queries 50]

Prints how much of a local vector codes lose, plain and rotated, and how many pictures a search must then read exactly.
The queries take a picture of the gallery as reference, the words of another as target and Add.
"""

from __future__ import annotations

import argparse

import numpy as np

import tapr
from tapr.encoders.base import Evidence
from tapr.score.compile import CompiledQuery, compile_query
from tapr.search.kernels.base import CODES, VECTORS
from tapr.search.kernels.bounds import radius
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score
from tapr.search.topk import top_k
from tapr.store import codec
from tapr.types import Float32


def plain_errors(vectors: Float32) -> Float32:
    """(..., d) -> (...): what codes of the vectors as they are lose."""
    scales = np.abs(vectors).max(axis=-1, keepdims=True) / 127
    return np.asarray(np.linalg.norm(vectors - np.rint(vectors / scales) * scales, axis=-1), np.float32)


def make_query(gallery: tapr.Gallery, reference: int, words: str) -> CompiledQuery:
    block = gallery.gather(gallery.rows[[reference]])
    evidence = Evidence(block.global_vectors.astype(np.float32), block.decoded().astype(np.float32))
    return compile_query(tapr.EditSpec(target=words, add=[words]), evidence, gallery.encoder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--queries", type=int, default=50)
    options = parser.parse_args()
    gallery = tapr.Gallery.open(options.gallery)
    blocks = list(gallery.blocks())
    globals_ = np.concatenate([block.global_vectors for block in blocks])[gallery.rows]
    locals_ = np.concatenate([block.decoded() for block in blocks])[gallery.rows]
    bank, coded = (MemoryBank.of(globals_, locals_, precision) for precision in ("both", "int8"))
    plain, (_, _, rotated) = plain_errors(locals_.astype(np.float32)), codec.quantise(locals_.astype(np.float16))
    card = gallery.card
    print(f"{len(gallery):,} pictures, {card.name} ({card.extractor}), weights {card.weights_sha256[:12]}")
    print(f"lost of a local vector of length 1: plain {plain.mean():.4f}, rotated {rotated.mean():.4f}")

    rng, kernel = np.random.default_rng(0), NumpyKernel()
    read: dict[str, list[int]] = {"plain codes": [], "rotated codes": [], "as the search does it": []}
    agreeing, moved = list[float](), list[float]()
    for _ in range(options.queries):
        reference, other = (int(number) for number in rng.integers(0, len(gallery), 2))
        query = make_query(gallery, reference, gallery.entries([other])[0].id)
        scores = score(query, bank)
        floor = np.partition(scores, -options.k)[-options.k]
        for name, errors in (("plain codes", plain), ("rotated codes", rotated)):
            within = radius(query, kernel, CODES, VECTORS, errors.max(axis=1), card.locals_count)
            read[name].append(int((scores + within >= floor).sum()))
        found = top_k(query, bank, options.k)
        approximate = top_k(query, coded, options.k)
        agreeing.append(len(set(found.positions) & set(approximate.positions)) / options.k)
        moved.append(float(np.abs(score(query, coded) - scores).max()))
        read["as the search does it"].append(found.rescored or len(gallery))
    print(f"pictures to be read exactly for the {options.k} best, mean of {options.queries} queries: ", end="")
    print(", ".join(f"{name} {np.mean(counts):.0f}" for name, counts in read.items()))
    print(
        f"codes alone: {np.mean(agreeing):.1%} of the {options.k} best are those of fp16, no score is off by more than "
        f"{max(moved):.5f}"
    )


if __name__ == "__main__":
    main()
