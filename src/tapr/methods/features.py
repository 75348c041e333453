"""The vectors that every method uses: of gallery pictures, references and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, EncoderCard, Evidence, unit
from tapr.errors import BadInput
from tapr.methods.blas_threads import one_thread
from tapr.search.kernels.base import Bank, Rows
from tapr.search.kernels.choose import gpu_in_use
from tapr.search.kernels.row_blocks import distinct, parts_of, pieces_of
from tapr.search.probe_means import ProbeMeans
from tapr.search.similarity import similarities
from tapr.store.block import Block, Precision
from tapr.store.summary import Subspaces
from tapr.types import Float32
from tapr.utils.threads import thread_count

_PIECE = 8  # pictures per block of a thread: their local vectors fit a core's cache


@dataclass(frozen=True, eq=False)
class BankView:
    """A bank restricted to some of its pictures, in a given order."""

    bank: Bank
    rows: NDArray[np.int64]  # (N,) physical

    @property
    def card(self) -> EncoderCard:
        return self.bank.card

    @property
    def precision(self) -> Precision:
        return self.bank.precision

    @property
    def row_count(self) -> int:
        return self.bank.row_count

    @property
    def stored(self) -> object:
        return self.bank.stored

    @property
    def subspaces(self) -> Subspaces | None:
        return self.bank.subspaces

    def blocks(self) -> Iterator[Block]:
        return self.bank.blocks()

    def gather(self, rows: NDArray[np.int64]) -> Block:
        return self.bank.gather(rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Composed:
    """The references of a query that has several, or a part of one."""

    wholes: tuple[str, ...]  # pictures whose global vectors stand for it; a part is a picture of its own
    references: tuple[tuple[str, NDArray[np.bool_] | None], ...]  # name, and the places inside its box; None: all


class HasReference(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def reference(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Features:
    """One gallery as the methods see it."""

    encoder: Encoder
    bank: BankView
    row_of: Mapping[str, int]  # name -> row of every picture, including references outside the gallery
    known: ProbeMeans | None = field(default=None, kw_only=True)  # probe matches computed for another method
    composed: Mapping[str, Composed] = field(default_factory=dict, kw_only=True)  # query id -> its references
    files: Mapping[str, Path] = field(default_factory=dict, kw_only=True)  # name -> file of every picture
    captions: Mapping[int, Sequence[str]] | None = field(default=None, kw_only=True)  # row -> captions of the picture

    @classmethod
    def of(cls, encoder: Encoder, bank: Bank, row_of: Mapping[str, int], gallery: Sequence[str]) -> Features:
        lost = next((name for name in gallery if name not in row_of), None)
        if lost is not None:
            raise BadInput(
                f"the bank has no picture {lost!r} of the benchmark's gallery: index its pictures again",
                code="unknown_picture",
            )
        return cls(encoder, BankView(bank, np.array([row_of[name] for name in gallery], np.int64)), row_of)

    def texts(self, phrases: Iterable[str]) -> Float32:
        """Text vectors (B, d) to compare with global vectors."""
        return self.encoder.encode_texts(list(phrases))

    def atoms(self, phrases: Iterable[str]) -> Float32:
        """Text vectors (B, d) to compare with local vectors."""
        return self.encoder.encode_atoms(list(phrases))

    @cached_property
    def global_vectors(self) -> Float32:
        """Global vectors (N, d), in gallery order."""
        rows, places = distinct(self.bank.rows, self.bank.row_count)
        parts = [
            np.asarray(block.global_vectors if inside is None else block.global_vectors[inside], np.float32)
            for block, inside in parts_of(self.bank, rows)
        ]
        return _reordered(parts, places)

    def references(self, names: Sequence[str]) -> Evidence:
        """Global and local vectors of references: (R, d), (R, M, d)."""
        lost = next((name for name in names if name not in self.row_of), None)
        if lost is not None:
            raise BadInput(
                f"the bank has no picture {lost!r}, which a query refers to: index the pictures again",
                code="unknown_picture",
            )
        block = self.bank.gather(np.array([self.row_of[name] for name in names], np.int64))
        return Evidence(block.global_vectors.astype(np.float32), block.decoded().astype(np.float32))

    def reference_vectors(self, names: Sequence[str]) -> Float32:
        """Global vectors of references, (R, d)."""
        unique = list(dict.fromkeys(names))
        step = 256  # local vectors are read with them, so only a few at a time
        parts = [self.references(unique[start : start + step]).global_vectors for start in range(0, len(unique), step)]
        row = {name: number for number, name in enumerate(unique)}
        return np.concatenate(parts)[[row[name] for name in names]]

    def query_vectors(self, queries: Sequence[HasReference]) -> Float32:
        """Return what stands for each query's reference, (Q, d): its global vector, or the mean of several."""
        composed = {query.id: self.composed[query.id] for query in queries if query.id in self.composed}
        if not composed:
            return self.reference_vectors([query.reference for query in queries])
        wholes = [composed[query.id].wholes if query.id in composed else (query.reference,) for query in queries]
        vectors = self.reference_vectors([name for names in wholes for name in names])
        ends = np.cumsum([0, *map(len, wholes)])
        return unit(np.stack([vectors[start:stop].mean(axis=0) for start, stop in pairwise(ends)]))

    def query_evidence(self, query: HasReference) -> list[Evidence]:
        """Return one per reference, as a search keeps it; of a part its local vectors and no global vector."""
        composed = self.composed.get(query.id)
        if composed is None:
            return [self.references([query.reference])]
        kept = []
        for name, inside in composed.references:
            found = self.references([name])
            kept.append(found if inside is None else Evidence(found.global_vectors[:0], found.local_vectors[:, inside]))
        return kept

    def similarities(self, vectors: NDArray[Any]) -> Float32:
        """(Q, d) -> (Q, N): dot products with every picture's global vector."""
        return similarities(vectors, self.global_vectors)

    def map(self, function: Callable[[Any, Any], Any]) -> NDArray[Any]:
        """Apply a function block by block, ((b, d), (b, M, d)) -> (b, ...), to the whole gallery: (N, ...).

        Blocks are NumPy arrays and run in several threads; with a GPU they are tensors on it.
        """
        rows, places = distinct(self.bank.rows, self.bank.row_count)
        gpu = gpu_in_use() if self.bank.precision != "int8" else None
        if gpu is not None:
            return _reordered([gpu.map(self.bank, rows, function)], places)

        def work(piece: Block) -> NDArray[Any]:
            found = function(piece.global_vectors.astype(np.float32), piece.decoded().astype(np.float32))
            return np.asarray(found)

        with one_thread(), ThreadPoolExecutor(thread_count()) as pool:
            parts = list(pool.map(work, pieces_of(self.bank, rows, _PIECE)))
        return _reordered(parts, places)


def array_library(array: Any) -> Any:
    """The library of an array: numpy or torch."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def to_same_device(array: NDArray[Any], other: Any) -> Any:
    """The array on the device of the other one."""
    return array if isinstance(other, np.ndarray) else array_library(other).from_numpy(array).to(other.device)


def _reordered(parts: Sequence[NDArray[Any]], places: Rows | None) -> NDArray[Any]:
    whole = np.concatenate(parts)
    return whole if places is None else whole[places]
