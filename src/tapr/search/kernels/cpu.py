"""The compiled kernel: native/*.cpp with the Kernel interface."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.score.compile import CompiledQuery
from tapr.search.kernels import _kernel
from tapr.search.kernels.base import (
    COARSE_CODES,
    CODES,
    SHORT_CODES,
    VECTORS,
    Bank,
    BoundingKernel,
    Level,
    Rows,
    SketchingKernel,
)
from tapr.search.kernels.bounds import MAX_FIXED
from tapr.search.kernels.host import HostKernel
from tapr.search.kernels.probe_layout import ProbeLayout
from tapr.search.kernels.row_blocks import parts_of
from tapr.search.kernels.sketch import Sketch
from tapr.store.block import Block
from tapr.store.codec import rotate
from tapr.store.summary import BLOCKS, HELD, directions_of
from tapr.types import Float32, Float64
from tapr.utils.threads import thread_count
from tapr.utils.weak_cache import weakly_cached

if TYPE_CHECKING:
    from tapr.search.prefilter.limit import Limit

# instruction sets that multiply codes by probes of one or two bytes; those in no list use float32
_BYTES = ("amx", "avx512vnni", "avxvnni", "neondot")
_WORDS = ("avx2",)  # multiply codes by 16-bit probes, all at the same cost
_BFLOATS = ("amx",)  # multiply fp16 vectors as one or two bfloat16
_FIXED = ("avx512vnni", "avxvnni", "avx2")  # first read fp16 vectors in fixed point, with 16-bit probes
_LANES = 16  # probes of bounds are worked on side by side in so many
_FINE = 16  # heaviest probes of a query that keep both bytes in a coarse reading: one SIMD vector


_NO_SKETCHES = (np.zeros((0, 4), np.int64), np.zeros(0, np.float32))


def isas() -> list[str]:
    """Instruction sets that work on this processor, fastest first: amx, avx512vnni, avxvnni, avx512, avx2; neondot,
    neon; portable.
    """
    names: list[str] = _kernel.isas()
    return names


def isa() -> str:
    """The default instruction set."""
    return isas()[0]


class CpuKernel(HostKernel):
    """Fused dot products, softmax and weighted sum on all cores. A score's bits do not depend on other rows or
    queries.
    """

    gains_by_summaries = True

    def __init__(self, isa_name: str | None = None, threads: int | None = None) -> None:
        self.isa = isa_name or isa()
        if self.isa not in isas():
            raise BadInput(f"the instruction set {self.isa!r} does not run here: choose one of {', '.join(isas())}")
        self.threads = threads or thread_count()

    @property
    def name(self) -> str:
        return f"cpu-{self.isa}"

    def bound_level(self, *, closer: bool) -> Level:
        """How probes are read for bounds (search/prefilter): the coarser, the looser and the faster."""
        return CODES if self.isa not in _BYTES else COARSE_CODES if closer else SHORT_CODES

    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        codes = (COARSE_CODES, CODES) if self.isa in _BYTES else (CODES,)
        vectors: tuple[Level, ...] = (VECTORS,)
        if self.isa in _BFLOATS or (self.isa in _FIXED and bank.card.dim <= MAX_FIXED):
            vectors = (Level(False, coarse=True, fixed=self.isa in _FIXED), VECTORS)
        return {"fp16": vectors, "int8": codes, "both": (codes[0], *vectors)}[bank.precision]

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        lost = _probes_of(query, level).lost
        if level.codes and self.isa not in _BYTES:
            return _lost_by_words(query, level) if self.isa in _WORDS else np.zeros_like(lost)
        return lost

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        scores = np.empty((len(queries), bank.row_count if rows is None else len(rows)), np.float32)
        if not scores.size:
            return scores
        probes = ProbesOfMany.of(queries, level)
        self._sweep(
            bank,
            level,
            rows,
            *probes.targets,
            probes.fine,
            probes.vectors,
            probes.weights,
            np.array([math.log2(math.e) / queries[n].tau for n in probes.owner.tolist()], np.float32),
            probes.owner,
            scores,
            *_NO_SKETCHES,
        )
        return scores

    def highest(
        self, sketches: Sequence[Sketch], limits: Sequence[float], bank: Bank, level: Level, rows: Rows | None
    ) -> Float32:
        found = np.empty((len(sketches), bank.row_count if rows is None else len(rows)), np.float32)
        if not found.size:
            return found
        lanes, words = ProbeLayout.of(sketches), [sketch.words for sketch in sketches]
        vectors = np.concatenate([_probes_of(one.reading, level).vectors for one in sketches])
        self._sweep(
            bank,
            level,
            rows,
            np.stack([one.target for one in words]),
            np.array([one.target_weight for one in words], np.float32),
            0 if level.coarse else len(lanes.owner),
            lanes.spread(vectors),
            lanes.weights,
            lanes.sharpness,
            lanes.owner,
            found,
            lanes.places,
            lanes.numbers(limits),
        )
        return found

    @property
    def sketcher(self) -> SketchingKernel | None:
        return self

    @property
    def bounder(self) -> BoundingKernel:
        return self

    def limits(
        self, limits: Sequence[Limit], bank: Bank, rows: Rows | None, targets: Float32, floors: Float64 | None
    ) -> Float32:
        """As limit.limits_by_numpy, with what rounding takes from the probes added, and a little more."""
        found = np.array(targets, np.float32, order="C")
        if not found.size:
            return found
        probes = ProbesOfMany.of([limit.query for limit in limits], self.bound_level(closer=True))
        first, second = directions_of(bank.card.locals_count, bank.card.dim)
        closer = floors is not None
        _kernel.bounds(
            self.isa,
            self.threads,
            [
                (
                    plain(block.global_vectors, np.float16) if closer else None,
                    plain(block.pooled, np.int8),
                    _bytes(block.outlines),
                    _bytes(block.summaries) if closer and second else None,
                    None if inside is None else plain(inside, np.int64),
                )
                for block, inside in parts_of(bank, rows)
            ],
            bank.card.locals_count,
            BLOCKS,
            first,
            second,
            *probes.targets,
            np.array([limit.target_length for limit in limits], np.float32),
            probes.fine if self.bound_level(closer=True).coarse else 0,
            probes.vectors,
            probes.weights,
            probes.owner,
            _lanes(self, limits, probes),
            None if floors is None else plain(floors, np.float64),
            found,
        )
        return found

    def pooled(self, wanted: NDArray[np.int16], bank: Bank, rows: Rows | None) -> Float32:
        found = np.empty((len(wanted), 2, bank.row_count if rows is None else len(rows)), np.float32)
        if found.size:
            parts = [
                (plain(block.pooled, np.int8), None if inside is None else plain(inside, np.int64))
                for block, inside in parts_of(bank, rows)
            ]
            _kernel.pooled(self.isa, self.threads, parts, wanted.shape[2], plain(wanted, np.int16), found)
        return found

    def means(self, probes: Float32, taus: Sequence[float], bank: Bank, rows: Rows | None) -> Float32:
        """(T, P, R): the soft mean of every probe over fp16 vectors; at tau 0, its best match."""
        found = np.empty((len(taus), len(probes), bank.row_count if rows is None else len(rows)), np.float32)
        if found.size:
            _kernel.means(
                self.isa,
                self.threads,
                [_arrays(block, VECTORS, inside) for block, inside in parts_of(bank, rows)],
                bank.card.locals_count,
                bank.card.dim,
                plain(probes, np.float32),
                np.array([math.log2(math.e) / tau if tau else 0.0 for tau in taus], np.float32),
                found,
            )
        return found

    def dots(self, targets: Float32, bank: Bank, rows: Rows | None) -> Float32:
        """(Q, R): the dot product of every target with the global vectors."""
        count, none = len(targets), np.zeros(0, np.float32)
        found = np.empty((count, bank.row_count if rows is None else len(rows)), np.float32)
        if found.size:
            self._sweep(
                bank,
                VECTORS,
                rows,
                targets,
                np.ones(count, np.float32),
                0,
                np.zeros((0, targets.shape[1]), np.float32),
                none,
                none,
                np.zeros(0, np.int32),
                found,
                *_NO_SKETCHES,
            )
        return found

    def _sweep(self, bank: Bank, level: Level, rows: Rows | None, targets: Float32, *queries: Any) -> None:
        """Pass the rows in the compiled kernel's format, and the other arguments of _kernel.score."""
        parts = [_arrays(block, level, inside) for block, inside in parts_of(bank, rows)]
        _kernel.score(self.isa, self.threads, parts, bank.card.locals_count, plain(targets, np.float32), *queries)


def _arrays(block: Block, level: Level, rows: Rows | None) -> _kernel.Part:
    """A block in the compiled kernel's format: global and local vectors, scales, selected rows."""
    inside = None if rows is None else plain(rows, np.int64)
    global_vectors = plain(block.global_vectors, np.float16)
    if level.codes:
        return global_vectors, plain(block.local_codes, np.int8), plain(block.local_scales, np.float32), inside
    return global_vectors, plain(block.local_vectors, np.float16), None, inside


class _Probes:
    """A query's probes as a level reads them, without those of weight 0."""

    def __init__(self, query: CompiledQuery, level: Level) -> None:
        self.vectors = _rotated(query.probes, level)
        kept = np.flatnonzero(query.weights)
        by_weight = kept[np.argsort(-np.abs(query.weights[kept]), kind="stable")]
        fine = len(kept) if not level.coarse else _FINE if level.codes and not level.short else 0
        self.full, self.rest = np.sort(by_weight[:fine]), np.sort(by_weight[fine:])
        if level.fixed:  # the kernel rounds them itself
            self.lost = _lost_by_words(query, level)
            return
        exact = self.vectors.astype(np.float64)
        self.vectors[self.rest] = (_one_byte if level.codes else _bfloat)(self.vectors[self.rest])
        self.lost = np.linalg.norm(exact - self.vectors, axis=1)  # (n,)
        if level.codes:  # two bytes: an error of at most half a step per component
            self.lost += np.abs(exact).max(axis=1, initial=0.0) / 127 / 254 / 2 * math.sqrt(query.dim)


@dataclass(frozen=True, eq=False)
class ProbesOfMany:
    """The probes of some queries, one after the other: first those of full precision, then the others."""

    targets: tuple[Float32, Float32]  # (Q, d), and their weights (Q,)
    fine: int  # how many are in full precision
    owner: NDArray[np.int32]  # (P,) the query of each
    chosen: NDArray[np.int64]  # (P,) and its index there
    vectors: Float32  # (P, d)
    weights: Float32  # (P,)

    @classmethod
    def of(cls, queries: Sequence[CompiledQuery], level: Level) -> ProbesOfMany:
        read = [_probes_of(query, level) for query in queries]
        lots = [(number, probes.full) for number, probes in enumerate(read)]
        lots += [(number, probes.rest) for number, probes in enumerate(read)]
        return cls(
            (
                plain(np.stack([query.target for query in queries]), np.float32),
                np.array([query.target_weight for query in queries], np.float32),
            ),
            sum(len(probes.full) for probes in read),
            np.concatenate([np.full(len(chosen), number, np.int32) for number, chosen in lots]),
            np.concatenate([chosen for _, chosen in lots]),
            plain(np.concatenate([read[number].vectors[chosen] for number, chosen in lots]), np.float32),
            np.concatenate([np.asarray(queries[number].weights[chosen], np.float32) for number, chosen in lots]),
        )


@weakly_cached
def _probes_of(query: CompiledQuery, level: Level) -> _Probes:
    return _Probes(query, level)


def _rotated(probes: Float32, level: Level) -> Float32:
    return rotate(probes).astype(np.float32) if level.codes else np.array(probes, np.float32)


@weakly_cached
def _lost_by_words(query: CompiledQuery, level: Level) -> NDArray[np.float64]:
    """(n,): an error of at most half a step per component. native/pack.cpp chooses the same steps."""
    sizes = np.abs(_rotated(query.probes, level).astype(np.float64))
    length = sizes.sum(axis=1) * 127 * 1.01 / 2**31 if level.codes else np.linalg.norm(sizes, axis=1) / 2**16
    steps = np.maximum(sizes.max(axis=1, initial=0.0) / 32767, length)
    return np.asarray(steps * (1 + 1e-6) / 2 * math.sqrt(query.dim))


def _one_byte(vectors: Float32) -> Float32:
    unit = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0) / np.float32(127)
    return np.asarray(np.rint(vectors / np.where(unit > 0, unit, 1)) * unit, np.float32)


def _bfloat(vectors: Float32) -> Float32:
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    return np.asarray((bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32))  # to nearest, ties to even


def plain(array: NDArray[Any] | None, dtype: type[np.generic]) -> NDArray[Any]:
    """In C order, as the kernel needs it. A mapped range of rows is not copied."""
    assert array is not None
    return np.ascontiguousarray(array, dtype=dtype)


def _lanes(kernel: CpuKernel, limits: Sequence[Limit], probes: ProbesOfMany) -> Float32:
    """What the kernel needs of every probe, in whole vectors of lanes: see Lanes in native/job.h."""
    lanes = np.zeros((5 + BLOCKS, -(-len(probes.owner) // _LANES) * _LANES), np.float32)
    lanes[0, : len(probes.owner)] = probes.weights
    signs = lanes[1] = np.where(lanes[0] < 0, -1, 1)
    for number, limit in enumerate(limits):
        own = np.flatnonzero(probes.owner == number)
        chosen = probes.chosen[own]
        places = np.searchsorted(limit.used, chosen)
        lanes[2, own], lanes[5:, own] = limit.offsets[places], limit.parts[:, places]
        for line, closer in ((3, False), (4, True)):
            lost = kernel.rounding_loss(limit.query, kernel.bound_level(closer=closer))[chosen]
            lanes[line, own] = signs[own] * lost * HELD * (1 + 1e-6)
    return lanes


def _bytes(records: NDArray[np.void] | None) -> NDArray[np.uint8]:
    assert records is not None
    return np.ascontiguousarray(records).view(np.uint8)
