"""Bounds and candidates by a GPU that holds the records: gpu_records.py, gpu_kernels.py. One query at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from tapr.search.kernels.gpu_pack import digit_base, upload
from tapr.search.prefilter import gpu_kernels
from tapr.search.prefilter.candidates import PooledQuery
from tapr.search.prefilter.gpu_records import BankRecords, DeviceRecords
from tapr.search.prefilter.limit import Limit
from tapr.store.codec import rotate
from tapr.types import Float32, Float64

_DEPTH = 64  # numbers of a vector per step
_TILE = 1 << 14  # sums that a program keeps: probes x pictures x places; benchmarks/first_stage_gpu.py --tiles compares
_WARPS = 4
_POOLED = 64  # pictures per program of the products with pooled vectors
_FEW, _MANY = 16, 32  # probes per tile


@dataclass(frozen=True, eq=False)
class DeviceProbes:
    """A query's probes as whole numbers of one or two digits, and what else the bound is made of."""

    target: Any  # (d,) float32, weighted
    target_length: Any  # (1,): at least its length
    digits: Any  # (1 or 2, P, d padded) int8; P: in whole tiles
    steps: Any  # (P,)
    weights: Any  # (P,)
    parts: Any  # (blocks, P)
    offsets: Any  # (P,)
    base: int  # of two digits; 0: one
    tile: int  # probes
    lost: Float64  # (n,) per probe of the query: what rounding changes in it, as Kernel.rounding_loss

    @classmethod
    def of(cls, limit: Limit, closer: bool, device: Any) -> DeviceProbes:
        """With one digit; `closer`: with two."""
        query = limit.query
        base = digit_base(query.dim) if closer else 0
        probes = rotate(query.probes[limit.used])
        steps, units = _whole(probes, 127 * (base or 1))
        lost = np.zeros(len(query.weights))
        lost[limit.used] = np.linalg.norm(probes - units * steps[:, None].astype(np.float64), axis=1) * (1 + 1e-9)
        tile = _FEW if len(probes) <= _FEW else _MANY
        count = -(-len(probes) // tile) * tile
        digits = np.zeros((2 if base else 1, count, padded(query.dim)), np.int8)
        digits[0, : len(probes), : query.dim] = first = np.rint(units / base) if base else units
        if base:
            digits[1, : len(probes), : query.dim] = units - base * first
        numbers = np.zeros((3 + len(limit.parts), count), np.float32)
        numbers[0, : len(probes)] = steps
        numbers[1, : len(probes)] = query.weights[limit.used]
        numbers[2, : len(probes)] = limit.offsets
        numbers[3:, : len(probes)] = limit.parts
        target = query.target.astype(np.float32) * np.float32(query.target_weight)
        aim, length, sent, rest = upload([target, np.array([limit.target_length]), digits, numbers], device)
        return cls(aim, length, sent, rest[0], rest[1], rest[3:], rest[2], base, tile, lost)


def padded(dim: int) -> int:
    """Numbers per probe: from any direction's first number and from the middle on, whole steps can be read."""
    half = (dim + 1) // 2
    return max(-(-dim // _DEPTH) * _DEPTH, half + -(-half // _DEPTH) * _DEPTH)


@dataclass(frozen=True, eq=False)
class DeviceResemblance:
    """Of one query, on the device: as candidates.Resemblance."""

    rows: Any  # (R,) int64; None: all of the bank
    promise: Any  # (R,)
    targets: Any  # (R,)

    def __len__(self) -> int:
        return len(self.promise)

    def at(self, indices: Any) -> tuple[Any, Any]:
        """Rows and targets of these (None: all of them)."""
        if indices is None:
            return self.rows, self.targets
        return indices if self.rows is None else self.rows[indices], self.targets[indices]


def resemblance_on(pooled: PooledQuery, records: BankRecords, rows: Any) -> DeviceResemblance:
    """Of these rows (int64, on the device; None: all)."""
    products = products_on(pooled.numbers, records, rows)
    products *= float(np.float32(pooled.step))
    targets, locals_ = products
    locals_ += targets
    targets += float(np.nextafter(np.float32(pooled.lost), np.float32(np.inf)))
    return DeviceResemblance(rows, locals_, targets)


def products_on(wanted: NDArray[np.int16], records: BankRecords, rows: Any) -> Any:
    """(2, d) -> (2, R) on the device: products with both halves of the pooled vectors."""
    pooled = records.outlined.pooled
    images = len(pooled) if rows is None else len(rows)
    found = torch.empty((2, images), device=pooled.device)
    if images:
        (vectors,) = upload([wanted], pooled.device)
        gpu_kernels.pooled_kernel[(triton.cdiv(images, _POOLED), 2)](
            pooled, vectors, found if rows is None else rows, found, images,
            D=wanted.shape[1], BI=_POOLED, BK=128, GATHER=rows is not None, num_warps=4,
        )  # fmt: skip
    return found


def limits_on(probes: DeviceProbes, records: BankRecords, rows: Any, targets: Any) -> Any:
    """(R,) on the device: as limit.limits_by_records, but for rounding, for these rows (int64, on it; None: all).

    `targets`: those of their resemblance; None: the bound is `closer`, and so are the probes.
    """
    pooled, outlines = records.outlined.pooled, records.outlined.outlines
    closer = targets is None
    further = records.summarised if closer else None
    assert not closer or further is not None
    last = outlines if further is None else further.summaries
    images = len(pooled) if rows is None else len(rows)
    found = torch.empty(images, device=pooled.device)
    if not images:
        return found
    shape = outlines.shape
    spread = max(4, triton.next_power_of_2(shape.places))
    pictures = max(1, min(32, (_TILE >> closer) // (spread * probes.tile)))
    packed = last.shape.packed if closer else 0  # of the last record nothing but its rests, where it is the only one
    gpu_kernels.limits_kernel[(triton.cdiv(images, pictures),)](
        pooled, *_arguments(outlines), *_arguments(last),
        last.fields["rests"], last.fields["mean_rests"], last.fields["step"],
        found if targets is None else targets, outlines.fields["lost"], probes.target_length,
        found if further is None else further.global_vectors, probes.target,
        probes.digits, probes.steps, probes.weights, probes.parts, probes.offsets,
        found if rows is None else rows, found, images, probes.digits.shape[1],
        PACKED1=shape.packed, RP0=_columns(1, pictures), RP1=_columns(shape.packed, pictures),
        PACKED2=packed, RP2=_columns(packed, pictures), CLOSER=closer, BLOCKS=shape.blocks,
        D=pooled.shape[1] // 2, PADDED=probes.digits.shape[2], M=shape.places, MP=spread, G=pictures,
        BP=probes.tile, BK=_DEPTH, BASE=probes.base, GATHER=rows is not None, num_warps=_WARPS, num_stages=3,
    )  # fmt: skip
    return found


def raised(found: Any, allowed: np.float32) -> Any:
    """Bounds with what rounding allows added."""
    more = found + float(allowed)
    return torch.nextafter(more, torch.full_like(more, torch.inf))


def _arguments(record: DeviceRecords) -> tuple[Any, ...]:
    fields = record.fields
    return fields["codes"].view(torch.int8), fields["scales"], fields["shares"], fields["mean_shares"]


def _columns(directions: int, pictures: int) -> int:
    """Columns per picture: at least 16 in all, which a product of tiles wants."""
    return int(max(triton.next_power_of_2(max(1, directions)), 16 // pictures))


def _whole(vectors: Float64, largest_unit: int) -> tuple[Float32, Float64]:
    """Vectors (n, d) -> steps (n,) and whole numbers (n, d) of them."""
    steps = (np.abs(vectors).max(axis=1, initial=0) / largest_unit).astype(np.float32)
    steps = np.where(steps > 0, steps, np.float32(1))
    units = np.rint(vectors / steps[:, None].astype(np.float64))
    return steps, np.clip(units, -largest_unit, largest_unit)
