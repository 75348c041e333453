"""The probes of many queries as one matrix on the device, in the numbers and the order its kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.query import CompiledQuery

MAX_FEW = 128  # up to so many probes the bank is the tall side of the product
SPLIT_ABOVE = 3e-5  # estimated error of a score from fp16 probes, above which they travel in two parts

# How many probes -> those of a tile, and those that follow in the same tile. 0: as many tiles as it takes.
BUCKETS = {
    16: (16, 0), 32: (32, 0), 64: (64, 0), 72: (64, 8), 80: (64, 16), 96: (64, 32), 128: (128, 0), 0: (128, 0)
}  # fmt: skip


def bucket_of(probes: int) -> int:
    return next((size for size in BUCKETS if probes <= size), 0)


@dataclass(frozen=True, eq=False)
class Packed:
    """Queries ready for a bank of one precision; probes are padded with zeros to whole tiles.

    A probe is a step times what `parts` holds. In fp16 the step is its largest component, which so loses nothing:
    real encoders have a component or two that hold most of a vector. Where the rounding of the others would still
    show, a second part holds what it lost. For int8 banks a probe is two digits, base * first + second. The second
    parts of a tile follow its first.
    """

    parts: Any  # (1 or 2 times rows, d) fp16 or int8
    steps: Any  # (rows,)
    heats: Any  # (rows,) step * log2(e) / tau
    weights: Any  # (rows, at least Q)
    targets: Any  # (2, d, at least Q) fp16: weighted targets, and what rounding them lost
    count: int  # probes, without the padding
    queries: int
    base: int  # of the int8 digits; 0 for fp16
    reach: float  # the largest |heat * probe|; times the longest local vector it bounds the exponents

    @property
    def rows(self) -> int:
        return len(self.heats)

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


def pack(queries: Sequence[CompiledQuery], dim: int, precision: str, device: Any) -> Packed:
    """Prepare queries for a bank of this (padded) dim and precision; done in NumPy, uploaded once."""
    own = queries[0].dim
    probes = np.concatenate([query.probes for query in queries]).astype(np.float32)  # (n, d)
    signed = np.concatenate([query.weights for query in queries]).astype(np.float32)
    owner = np.repeat(np.arange(len(queries)), [len(query.probes) for query in queries])
    count = len(probes)
    first, rest = BUCKETS[bucket_of(count)]
    rows = -(-count // (first + rest)) * (first + rest)
    width = max(16, 1 << (len(queries) - 1).bit_length())

    padded = np.zeros((rows, dim), np.float32)
    padded[:count, :own] = probes
    heats = np.zeros(rows, np.float32)
    heats[:count] = np.array([np.log2(np.e) / query.tau for query in queries], np.float32)[owner]
    reach = np.linalg.norm(probes, axis=1) * heats[:count]
    weights = np.zeros((rows, width), np.float32)
    weights[np.arange(count), owner] = signed
    targets = np.zeros((dim, width), np.float32)
    for column, query in enumerate(queries):
        targets[:own, column] = np.float32(query.target_weight) * query.target

    largest = np.abs(padded).max(axis=1, initial=0.0)
    largest[largest == 0] = 1
    parts: NDArray[Any]
    if precision == "int8":
        base = _digit_base(dim)
        steps = (largest / (127 * base)).astype(np.float32)
        parts = _digits(padded, steps, base)
    else:
        base, steps = 0, largest
        parts = _halves(padded / steps[:, None])
        lost = probes - parts[0, :count, :own].astype(np.float32) * steps[:count, None]
        errors = np.bincount(owner, _rounding_errors(probes, lost, signed), minlength=len(queries))
        parts = parts if errors.max(initial=0.0) > SPLIT_ABOVE else parts[:1]

    def to(array: NDArray[Any]) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Packed(
        parts=to(_by_tile(parts, first, rest)), steps=to(steps), heats=to(heats * steps), weights=to(weights),
        targets=to(_halves(targets)), count=count, queries=len(queries), base=base,
        reach=float(reach.max(initial=0.0)),
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


def _halves(array: Float32) -> NDArray[np.float16]:
    """-> (2, ...) fp16: the rounded numbers and what the rounding lost. In torch, whose conversion is the faster."""
    whole = torch.from_numpy(array)
    first = whole.half()
    return np.asarray(torch.stack([first, (whole - first.float()).half()]).numpy())


def _digit_base(dim: int) -> int:
    """The largest power of two up to 128 with which no sum of d products of two digits and a code leaves int32."""
    base = 128
    while dim * 127 * (127 * base + base // 2) >= 2**31:
        base //= 2
    return base


def _digits(probes: Float32, steps: Float32, base: int) -> NDArray[np.int8]:
    """u = step * (base * first + second): (n, d) -> (2, n, d) int8 digits."""
    units = np.rint(probes.astype(np.float64) / steps[:, None])
    first = np.clip(np.rint(units / base), -127, 127)
    return np.stack([first, units - base * first]).astype(np.int8)


def _rounding_errors(probes: Float32, lost: Float32, weights: Float32) -> NDArray[np.float64]:
    """How far rounding a probe to fp16 may move its term: |weight| * |lost . v|, for v spread out or like the probe."""
    spread = probes.astype(np.float64) ** 2 + 1 / max(1, probes.shape[1])
    return np.asarray(np.abs(weights) * np.sqrt((lost.astype(np.float64) ** 2 * spread).sum(axis=1)))
