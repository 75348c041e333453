"""Bounds and candidates by a GPU that holds the records: gpu_records.py, gpu_kernels.py. One query at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from tapr.search.kernels.gpu_pack import digit_base, upload
from tapr.search.kernels.gpu_topk import largest
from tapr.search.prefilter import gpu_kernels
from tapr.search.prefilter.gpu_records import BankRecords, DeviceRecords
from tapr.search.prefilter.limit import Limit
from tapr.store.codec import rotate
from tapr.types import Float32, Float64

_DEPTH = 64  # numbers of a vector per step
_TILE = 1 << 14  # sums that a program keeps: probes x pictures x places. Not tuned on a card yet
_WARPS = 4
_POOLED = 64  # pictures per program of the products with pooled vectors
_FEW, _MANY = 16, 32  # probes per tile


@dataclass(frozen=True, eq=False)
class DeviceProbes:
    """A query's probes as whole numbers of one or two digits, and what else the bound is made of."""

    target: Any  # (d,) float32, weighted
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
        aim, sent, rest = upload([target, digits, numbers], device)
        return cls(aim, sent, rest[0], rest[1], rest[3:], rest[2], base, tile, lost)


def padded(dim: int) -> int:
    """Numbers per probe: from any direction's first number and from the middle on, whole steps can be read."""
    half = (dim + 1) // 2
    return max(-(-dim // _DEPTH) * _DEPTH, half + -(-half // _DEPTH) * _DEPTH)


def limits_on(probes: DeviceProbes, records: BankRecords, rows: Any, closer: bool) -> Any:
    """(R,) on the device: as limit.limits_by_numpy, but for rounding, for these rows (int64, on it; None: all)."""
    outlines = records.outlined.outlines
    last = records.summaries if closer else outlines
    assert last is not None
    count, dim = records.outlined.global_vectors.shape
    images = count if rows is None else len(rows)
    found = torch.empty(images, device=outlines.fields["step"].device)
    if not images:
        return found
    shape, further = outlines.shape, last.shape
    spread = max(4, triton.next_power_of_2(shape.places))
    pictures = max(1, min(32, (_TILE >> closer) // (spread * probes.tile)))
    # of the last record nothing but its rests, where it is the only one
    shapes = [(shape.wide, shape.packed), (further.wide, further.packed) if closer else (0, 0)]
    constants = {
        f"{name}{number}": value
        for number, (wide, packed) in enumerate(shapes, 1)
        for name, value in (("WIDE", wide), ("PACKED", packed), ("RP", _columns(max(wide, packed), pictures)))
    }
    gpu_kernels.limits_kernel[(triton.cdiv(images, pictures),)](
        *_arguments(outlines), *_arguments(last),
        last.fields["rests"], last.fields["mean_rests"], last.fields["step"],
        records.outlined.global_vectors, probes.target, probes.digits, probes.steps, probes.weights, probes.parts,
        probes.offsets, found if rows is None else rows, found, images, probes.digits.shape[1],
        **constants, BLOCKS=shape.blocks, D=dim, PADDED=probes.digits.shape[2], M=shape.places, MP=spread, G=pictures,
        BP=probes.tile, BK=_DEPTH, BASE=probes.base, GATHER=rows is not None, num_warps=_WARPS, num_stages=3,
    )  # fmt: skip
    return found


def pooled_on(wanted: NDArray[np.int16], records: BankRecords, rows: Any) -> Any:
    """(2 d,) -> (R,) on the device: products with the pooled vectors."""
    pooled = records.outlined.pooled
    images = len(pooled) if rows is None else len(rows)
    found = torch.empty(images, device=pooled.device)
    if images:
        (vector,) = upload([wanted], pooled.device)
        gpu_kernels.pooled_kernel[(triton.cdiv(images, _POOLED),)](
            pooled, vector, found if rows is None else rows, found, images,
            W=pooled.shape[1], BI=_POOLED, BK=128, GATHER=rows is not None, num_warps=4,
        )  # fmt: skip
    return found


def candidates_on(wanted: NDArray[np.int16], records: BankRecords, rows: Any, count: int) -> NDArray[np.int64]:
    """Indices of the most promising rows, ascending."""
    promise = pooled_on(wanted, records, rows)
    return np.sort(largest(promise[None], count)[0][0].cpu().numpy())


def raised(found: Any, allowed: np.float32) -> Any:
    """Bounds with what rounding allows added."""
    more = found + float(allowed)
    return torch.nextafter(more, torch.full_like(more, torch.inf))


def _arguments(record: DeviceRecords) -> tuple[Any, ...]:
    """Codes twice: those in bytes, and those in nibbles. A record has either."""
    fields = record.fields
    codes = fields["codes"].view(torch.int8)
    return codes, codes, fields["scales"], fields["shares"], fields["mean_shares"]


def _columns(directions: int, pictures: int) -> int:
    """Columns per picture: at least 16 in all, which a product of tiles wants."""
    return int(max(triton.next_power_of_2(max(1, directions)), 16 // pictures))


def _whole(vectors: Float64, largest_unit: int) -> tuple[Float32, Float64]:
    """Vectors (n, d) -> steps (n,) and whole numbers (n, d) of them."""
    steps = (np.abs(vectors).max(axis=1, initial=0) / largest_unit).astype(np.float32)
    steps = np.where(steps > 0, steps, np.float32(1))
    units = np.rint(vectors / steps[:, None].astype(np.float64))
    return steps, np.clip(units, -largest_unit, largest_unit)
