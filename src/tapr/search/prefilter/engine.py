"""Finds candidates with an index of one vector per picture: [global vector, mean of local vectors].

A query is [target, weighted sum of its probes]. The inner product of both is the score that the picture would have if
all its local vectors were equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tapr.errors import BadInput, TaprError
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Rows
from tapr.store.block import Block
from tapr.types import Float32
from tapr.utils.extras import install_hint
from tapr.utils.threads import thread_count

_TRAINED_ON = 50_000  # pictures the index is trained on
_LISTS = 4  # number of lists: this times the square root of the number of pictures
_PROBED = 1 / 8  # share of the lists that a query reads


class Engine(Protocol):
    """An index of candidates. Any will do: the proof of an answer does not depend on it."""

    def candidates(self, query: CompiledQuery, count: int) -> Rows:
        """At most `count` physical rows, the most promising first."""


def picture_vectors(block: Block) -> Float32:
    """(B, 2 d)"""
    pooled = block.decoded().mean(axis=1, dtype=np.float32)
    return np.concatenate([block.global_vectors.astype(np.float32), pooled], axis=1)


def query_vector(query: CompiledQuery) -> Float32:
    """(2 d,)"""
    local = np.asarray(query.weights, np.float32) @ query.probes
    return np.concatenate([query.target * np.float32(query.target_weight), local]).astype(np.float32)


class FaissEngine:
    """FAISS inverted lists of 8-bit codes: a quarter of the size of float32, built row by row."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @staticmethod
    def check() -> None:
        """Raise if FAISS is not installed."""
        _faiss()

    @classmethod
    def trained(cls, sample: Float32, rows: int) -> FaissEngine:
        faiss = _faiss()
        lists = max(1, min(int(_LISTS * rows**0.5), len(sample) // 40))
        dim = sample.shape[1]
        index = faiss.index_factory(dim, f"IVF{lists},SQ8" if lists > 1 else "SQ8", faiss.METRIC_INNER_PRODUCT)
        index.train(sample[:_TRAINED_ON])
        if lists > 1:
            index.nprobe = max(1, round(lists * _PROBED))
        return cls(index)

    def add(self, vectors: Float32) -> None:
        self._index.add(np.ascontiguousarray(vectors, np.float32))

    def candidates(self, query: CompiledQuery, count: int) -> Rows:
        _, found = self._index.search(query_vector(query)[None], min(count, self._index.ntotal))
        return np.asarray(found[0][found[0] >= 0], np.int64)

    def save(self, path: Path) -> None:
        _faiss().write_index(self._index, str(path))

    @classmethod
    def load(cls, path: Path) -> FaissEngine:
        faiss = _faiss()
        try:
            return cls(faiss.read_index(str(path), faiss.IO_FLAG_MMAP))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[-120:]
            raise TaprError(f"cannot read {path} ({reason}): run tapr first-stage again") from None


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise BadInput(f"a first stage needs FAISS: {install_hint('first-stage')}") from error
    faiss.omp_set_num_threads(thread_count())
    return faiss
