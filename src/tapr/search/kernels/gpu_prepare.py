# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, no-untyped-call"
"""Prepares probes on the device: rotates them for codes, and splits them into the numbers that the kernels multiply.

The host sends the probes and gets three numbers per probe back: the remainder, the length, and whether one fp16 part is
enough. Every sum runs along one probe in an order that depends only on d, so a probe's result does not depend on other
probes (except that large batches are rotated by torch, which may change a last bit).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

from tapr.store.codec import rotation

_MANY = 256  # from this many probes on, torch rotates them: faster, but the last bits may depend on the device
_ROUND = tl.constexpr(12582912.0)  # 1.5 * 2^23: adding it rounds a small number to an integer


@triton.jit(do_not_specialize=["count"])
def turn_kernel(
    vectors, columns, rotated, count, D: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """rotated[r, j] = sum_k vectors[r, k] columns[k, j], in float64, rounded once."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    j = tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros([BR, BD], tl.float64)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        v = tl.load(vectors + r[:, None] * D + k[None, :], (r < count)[:, None] & (k < D)[None, :], 0.0)
        c = tl.load(columns + k[:, None] * D + j[None, :], (k < D)[:, None] & (j < D)[None, :], 0.0)
        acc += tl.sum(v.to(tl.float64)[:, :, None] * c[None, :, :], 1)
    tl.store(rotated + r[:, None] * D + j[None, :], acc.to(tl.float32), (r < count)[:, None] & (j < D)[None, :])


@triton.jit
def _whole(x):
    return (x + _ROUND) - _ROUND


@triton.jit(do_not_specialize=["total"])
def parts_kernel(
    vectors, places, sharpnesses_in, parts, steps, sharpnesses, facts, total, top, spread,
    D: tl.constexpr, WIDTH: tl.constexpr, BD: tl.constexpr, PIECES: tl.constexpr, BASE: tl.constexpr,
):  # fmt: skip
    """One probe: write its parts to their places in the tile, its step and sharpness, and facts[:, r] (see gpu_pack).

    places[:, r]: the row of the first part, the distance to the second part, and the row in `steps`.
    """
    r = tl.program_id(0)
    k = tl.arange(0, BD)
    real = k < D
    v = tl.load(vectors + r * D + k, real, 0.0)
    step = tl.div_rn(tl.max(tl.abs(v), 0), top)
    step = tl.where(step == 0.0, 1.0, step)
    x = tl.div_rn(v, step)
    there = parts + tl.load(places + r).to(tl.int64) * WIDTH + k
    behind = tl.load(places + total + r) * WIDTH
    if BASE:
        units = _whole(x)
        left = x - units
        lost = left
        if PIECES == 2:
            first = _whole(units * (1 / BASE))  # a power of two
            tl.store(there, first.to(tl.int8), real)
            tl.store(there + behind, (units - BASE * first).to(tl.int8), real)
        else:
            tl.store(there, units.to(tl.int8), real)
    else:
        half = x.to(tl.float16)
        left = x - half.to(tl.float32)
        lost = left
        tl.store(there, half, real)
        if PIECES == 2:
            second = left.to(tl.float16)
            lost = left - second.to(tl.float32)
            tl.store(there + behind, second, real)
    row = tl.load(places + 2 * total + r)
    tl.store(steps + row, step)
    tl.store(sharpnesses + row, (tl.load(sharpnesses_in + r) * step.to(tl.float64)).to(tl.float32))
    tl.store(facts + r, tl.sqrt(tl.sum(lost * lost, 0)) * step)
    tl.store(facts + total + r, tl.sqrt(tl.sum(v * v, 0)))
    tl.store(facts + 2 * total + r, tl.sqrt(tl.sum(left * left * (v * v + spread), 0)) * step)


def rotated(vectors: Any) -> Any:
    """(n, d) float32, rotated as for codes (codec.rotate)."""
    count, dim = vectors.shape
    if count > _MANY:
        return (vectors.double() @ _columns(dim, vectors.device)).float()
    found = torch.empty_like(vectors)
    turn_kernel[(triton.cdiv(count, 4), triton.cdiv(dim, 64))](
        vectors, _columns(dim, vectors.device), found, count, D=dim, BR=4, BK=16, BD=64, num_warps=4
    )
    return found


def cut(
    vectors: Any, places: Any, sharpnesses: Any, parts: Any, steps: Any, sharpness: Any, base: int, pieces: int
) -> Any:
    """Fill parts (.., d padded), steps and sharpness. Returns (3, n) numbers per probe, on the device."""
    count, dim = vectors.shape
    facts = torch.empty((3, count), device=vectors.device)
    top = 1.0 if not base else 127.0 * base if pieces == 2 else 127.0
    parts_kernel[(count,)](
        vectors, places, sharpnesses, parts, steps, sharpness, facts, count, top, 1 / dim, D=dim,
        WIDTH=parts.shape[1], BD=triton.next_power_of_2(dim), PIECES=pieces, BASE=base, num_warps=4,
    )  # fmt: skip
    return facts


@lru_cache
def _columns(dim: int, device: Any) -> Any:
    """(d, d) float64: the rotation, transposed."""
    return torch.from_numpy(rotation(dim).T.copy()).to(device)
