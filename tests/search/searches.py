"""Two hundred searches that every kernel must answer as a full scan does.

tests/search/test_answers.py checks that, and tools/golden.py compares two versions of the code. Banks and queries come
from fixed seeds: random, clustered and spiked banks with ties, dead and shared rows, and filters; queries with few
probes, empty factors and weights of zero; one local vector; with and without codes, a first stage and limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Kernel
from tapr.search.match import match
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import TopK
from tapr.store.block import PRECISIONS, Precision
from tests.search.banks import clustered_bank, like_this, make_query, random_bank, spiked_bank

MAKERS = {"random": random_bank, "clustered": clustered_bank, "spiked": spiked_bank}
PICTURES, DIM = 600, 32
ROWS = {
    "all": None,
    "filtered": np.arange(3, PICTURES, 2),
    "shared": np.sort(np.concatenate([np.arange(0, PICTURES, 3), np.arange(0, PICTURES, 9), [5, 5, 5]])),
    "reversed": np.arange(PICTURES)[::-1].copy(),
    "few": np.array([5, 5, 9, 60, 61, 62, 5, 99]),
    "none": np.zeros(0, np.int64),
}


@dataclass(frozen=True, eq=False)
class Search:
    name: str
    bank: MemoryBank
    queries: list[CompiledQuery]
    k: int
    prefilter: Budget | None = None
    budget_ms: float | None = None

    def answers(self, kernel: Kernel) -> list[TopK]:
        return match(self.queries, self.bank, self.k, kernel, self.prefilter, self.budget_ms)


@cache
def bank_of(maker: str, count: int, precision: Precision, rows: str) -> MemoryBank:
    rng = np.random.default_rng([len(maker), count])
    global_vectors, local_vectors = MAKERS[maker](rng, PICTURES, count, DIM)
    global_vectors[50:60], local_vectors[50:60] = global_vectors[3], local_vectors[3]  # ties
    local_vectors[7] = 0
    bank = MemoryBank.of(global_vectors, local_vectors, precision, block_rows=150).summarised()
    chosen = ROWS[rows]
    return bank if chosen is None else replace(bank, rows=chosen)


def queries_of(rng: np.random.Generator, near: np.ndarray) -> dict[str, list[CompiledQuery]]:
    plain = make_query(rng, 30, DIM)
    return {
        "words": [make_query(rng, 4, DIM)],
        "near": [make_query(rng, 20, DIM, near=near)],
        "reference": [like_this(rng, DIM)],
        "cropped": [like_this(rng, DIM, words=2, places=(12,))],
        "target alone": [make_query(rng, 0, DIM)],
        "no target": [replace(plain, global_weights=np.zeros(1, np.float32))],
        "zero weights": [replace(plain, weights=np.zeros(30, np.float32))],
        "half zero": [replace(plain, weights=(plain.weights * (np.arange(30) % 2)).astype(np.float32))],
        "remove alone": [replace(plain, weights=-np.abs(plain.weights))],
        "several": [make_query(rng, 9, DIM), like_this(rng, DIM), make_query(rng, 0, DIM), make_query(rng, 3, DIM)],
    }


def searches() -> Iterator[Search]:
    """Draw the 200 searches."""
    rng, number = np.random.default_rng(33), 0
    views = [(maker, count, rows) for rows in ROWS for maker in MAKERS for count in (9, 1)]
    while number < 200:
        maker, count, rows = views[number % len(views)]
        bank = bank_of(maker, count, PRECISIONS[number % len(PRECISIONS)], rows)
        kinds = queries_of(rng, bank.block.decoded().astype(np.float32))
        kind = list(kinds)[number // 3 % len(kinds)]
        k = (1, 5, 10, 30, 700)[number // 7 % 5]
        limits: tuple[Budget | None, float | None]
        limits = ((None, None), (None, None), ("exact", None), (150, None), (3, None), ("exact", 1e7))[number // 2 % 6]
        name = f"{number} {maker} M={count} {bank.precision} rows={rows} {kind} k={k} limits={limits}"
        yield Search(name, bank, kinds[kind], k, *limits)
        number += 1
