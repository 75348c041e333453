"""The probes of many queries as one matrix on the device, in the numbers and the order its kernels read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.gallery.codec import LONGEST, rotate
from tapr.match.base import Level
from tapr.match.remember import remembered
from tapr.score.compile import CompiledQuery

PROBES_AT_ONCE = 2304  # of all queries in one sweep: 32 queries of 72, 18 full tiles
QUERIES_AT_ONCE = 64
MAX_FEW = 128  # up to so many probes the bank is the tall side of the product
SPLIT_ABOVE = 3e-5  # estimated error of a score from fp16 probes, above which they travel in two parts
SAFE_EXPONENT = 100.0  # 2 ** this, summed over a picture, stays far inside float32: no maximum need be subtracted
_CUT = 2.0**-23  # tensor cores cut off where float32 rounds: for each product, so much more than the bound counts

# How many probes -> those of a tile, and those that follow in the same tile. 0: as many tiles as it takes.
BUCKETS = {
    16: (16, 0), 32: (32, 0), 64: (64, 0), 72: (64, 8), 80: (64, 16), 96: (64, 32), 128: (128, 0), 0: (128, 0)
}  # fmt: skip


def bucket_of(probes: int) -> int:
    return next((size for size in BUCKETS if probes <= size), 0)


@dataclass(frozen=True, eq=False)
class Probes:
    """One query's probes, those of weight 0 left out, as the kernels read them at a level: its own affair alone.

    A probe is a step times what `parts` holds. In fp16 the step is its largest component, which so loses nothing:
    real encoders have a component or two that hold most of a vector. Where the rounding of the others would still
    show, a second part holds what it lost. For codes a (rotated) probe is two digits, base * first + second.
    """

    parts: NDArray[Any]  # (1 or 2, n, d) fp16 or int8
    steps: Float32  # (n,)
    sharpness: float  # log2(e) / tau
    weights: Float32  # (n,)
    target: Float32  # (d,) weighted
    base: int  # of the int8 digits; 0 for fp16
    shifted: bool  # a softmax must subtract its maximum, or 2 ** exponent could overflow
    lost: NDArray[np.float64]  # of each of the query's probes, those of weight 0 too: see Kernel.lost

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def manner(self) -> tuple[int, bool]:
        """Queries that are read alike share a sweep."""
        return len(self.parts), self.shifted


@remembered
def probes_of(query: CompiledQuery, level: Level) -> Probes:
    codes = level.codes
    kept = np.flatnonzero(query.weights)
    weights = np.asarray(query.weights[kept], np.float32)
    vectors = np.asarray(rotate(query.probes[kept]) if codes else query.probes[kept], np.float32)  # (n, d)
    lengths = np.linalg.norm(vectors, axis=1)
    base = _digit_base(query.dim) if codes else 0
    steps = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(127 * base if codes else 1)
    steps[steps == 0] = 1
    in_steps = vectors / steps[:, None]
    parts: NDArray[Any]
    if codes:
        parts, rest = _digits(in_steps, base)
    else:
        parts, rest = _halves(in_steps)
        spread = vectors**2 + np.float32(1 / query.dim)  # for local vectors spread out, or like their probe
        if float(np.abs(weights) @ (np.sqrt((rest**2 * spread).sum(axis=1)) * steps)) > SPLIT_ABOVE:
            second, rest = _halves(rest)
            parts = np.concatenate([parts, second])
    lost = np.zeros(len(query.probes))
    # what the parts leave, as float32 finds it (0.01 % more than enough), what float32 lost before, and the cuts
    lost[kept] = np.linalg.norm(rest, axis=1) * steps * 1.0001 + _CUT * (query.dim + 2) * lengths
    sharpness = math.log2(math.e) / query.tau
    longest = LONGEST * (1 + math.sqrt(query.dim) / 254 * codes)  # half a step in each component
    return Probes(
        parts, steps, sharpness, weights, np.float32(query.target_weight) * query.target.astype(np.float32), base,
        not sharpness * float(lengths.max(initial=0.0)) * longest < SAFE_EXPONENT, lost,
    )  # fmt: skip


def groups_of(queries: Sequence[Probes]) -> Iterator[list[int]]:
    """Cut queries into groups for one sweep each: read alike, and as many as fit, at least one."""
    for _, alike in groupby(sorted(range(len(queries)), key=lambda q: queries[q].manner), lambda q: queries[q].manner):
        group: list[int] = []
        for q in alike:
            probes = len(queries[q]) + sum(len(queries[other]) for other in group)
            if group and (probes > PROBES_AT_ONCE or len(group) == QUERIES_AT_ONCE):
                yield group
                group = []
            group.append(q)
        yield group


@dataclass(frozen=True, eq=False)
class Packed:
    """Queries of one manner, ready for the device; probes are padded with zeros to whole tiles.

    The second parts of a tile's probes follow its first.
    """

    parts: Any  # (1 or 2 times rows, d) fp16 or int8
    steps: Any  # (rows,)
    sharpnesses: Any  # (rows,) step * log2(e) / tau
    weights: Any  # (rows, at least Q)
    targets: Any  # (Q, d) float32
    count: int  # probes, without the padding
    base: int
    shifted: bool

    @property
    def queries(self) -> int:
        return len(self.targets)

    @property
    def rows(self) -> int:
        return len(self.sharpnesses)

    @property
    def pieces(self) -> int:
        return len(self.parts) // self.rows if self.rows else 1

    @property
    def precision(self) -> str:
        return "int8" if self.base else ("fp16", "fp16x2")[self.pieces - 1]

    @property
    def bucket(self) -> int:
        return bucket_of(self.count)

    @property
    def first(self) -> int:
        return BUCKETS[self.bucket][0]

    @property
    def rest(self) -> int:
        return BUCKETS[self.bucket][1]

    @property
    def tiles(self) -> int:
        return self.rows // (self.first + self.rest)


def pack(queries: Sequence[Probes], dim: int, device: Any) -> Packed:
    """Queries of one manner for a bank of this (padded) dim; laid out in NumPy, uploaded once."""
    own = queries[0].parts.shape[2]
    owner = np.repeat(np.arange(len(queries)), [len(query) for query in queries])
    count = len(owner)
    first, rest = BUCKETS[bucket_of(count)]
    rows = -(-count // (first + rest)) * (first + rest)
    pieces = len(queries[0].parts)
    parts = np.zeros((pieces, rows, dim), queries[0].parts.dtype)
    steps, sharpnesses = np.ones(rows, np.float32), np.zeros(rows, np.float32)
    weights = np.zeros((rows, max(16, 1 << (len(queries) - 1).bit_length())), np.float32)
    targets = np.zeros((len(queries), dim), np.float32)
    np.concatenate([query.parts for query in queries], axis=1, out=parts[:, :count, :own])
    np.concatenate([query.steps for query in queries], out=steps[:count])
    sharpnesses[:count] = np.array([query.sharpness for query in queries])[owner] * steps[:count]
    weights[np.arange(count), owner] = np.concatenate([query.weights for query in queries])
    np.stack([query.target for query in queries], out=targets[:, :own])

    def to(array: NDArray[Any]) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Packed(
        parts=to(_by_tile(parts, first, rest)), steps=to(steps), sharpnesses=to(sharpnesses), weights=to(weights),
        targets=to(targets), count=count, base=queries[0].base, shifted=queries[0].shifted,
    )  # fmt: skip


def _by_tile(parts: NDArray[Any], first: int, rest: int) -> NDArray[Any]:
    """(P, rows, d) -> (P * rows, d): each tile's P parts together, then those of what follows in the tile."""
    pieces, rows, dim = parts.shape
    tiles = parts.reshape(pieces, rows // (first + rest), first + rest, dim).transpose(1, 0, 2, 3)
    cut = (
        tiles[:, :, :first].reshape(len(tiles), pieces * first, dim),
        tiles[:, :, first:].reshape(len(tiles), pieces * rest, dim),
    )
    return np.concatenate(cut, axis=1).reshape(pieces * rows, dim)


def _halves(array: Float32) -> tuple[NDArray[np.float16], Float32]:
    """-> (1, ...) fp16, and what the rounding lost. In NumPy: torch wakes all its threads for so little."""
    half = array.astype(np.float16)
    return half[None], array - half.astype(np.float32)


def _digit_base(dim: int) -> int:
    """The largest power of two up to 128 with which no sum of d products of two digits and a code leaves int32."""
    base = 128
    while dim * 127 * (127 * base + base // 2) >= 2**31:
        base //= 2
    return base


def _digits(in_steps: Float32, base: int) -> tuple[NDArray[np.int8], Float32]:
    """-> (2, n, d) digits, base * first + second, and what the rounding lost. Nothing is above 127 * base."""
    units = np.rint(in_steps)
    first = np.rint(units / np.float32(base))
    return np.stack([first, units - np.float32(base) * first]).astype(np.int8), in_steps - units
