# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, no-untyped-call"
"""The fused Triton kernels: l_tau of every probe and picture in one pass over the bank, then the weighted sums.

`probe_means_kernel` multiplies a tile of probes with the local vectors of a few pictures on the tensor cores and
turns the products into softmax means before anything leaves the chip: of the N x n x M products only N x n means
are written. `weigh_kernel` sums those means with the signed weights of their queries and adds the targets.

Which side of the product the bank is on decides the cost. Up to 128 probes the scan waits for memory: the bank is
the tall side, and the probes' side is cut as small as they are (72 probes: 64 + 16). With more probes it waits for
the tensor cores: probes of all queries are rows of 128-row tiles, and each softmax runs along a thread's registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

MAX_LOCALS = 256  # the copy engine's largest box side
MAX_FEW = 128  # more probes than these are cut into tiles of their own


@triton.jit
def _products(v, p, acc, BANK_FIRST: tl.constexpr):
    if BANK_FIRST:
        return tl.dot(v, p.T, acc, out_dtype=acc.dtype)
    return tl.dot(p, v.T, acc, out_dtype=acc.dtype)


@triton.jit
def _soft_means(
    acc, low, p0, i0, scales, steps, heats, means, images, stride,
    M: tl.constexpr, G: tl.constexpr, SLOT: tl.constexpr, BP: tl.constexpr,
    BASE: tl.constexpr, SHIFTED: tl.constexpr, BANK_FIRST: tl.constexpr,
):  # fmt: skip
    """Products of one tile -> its means: sum_j e_j s_j / sum_j e_j with e = 2 ** (heat * s), over each picture."""
    axis: tl.constexpr = 1 if BANK_FIRST else 2
    p = p0 + tl.arange(0, BP)
    image = i0 + tl.arange(0, G)
    j = tl.arange(0, SLOT)
    if BASE:
        acc = (acc * BASE + low).to(tl.float32)
        scale = tl.load(scales + image[:, None] * M + j[None, :], (image < images)[:, None] & (j < M)[None, :], 0.0)
        step = tl.load(steps + p)
    heat = tl.load(heats + p)
    if BANK_FIRST:
        s = acc.reshape(G, SLOT, BP)
        if BASE:
            s = s * scale[:, :, None] * step[None, None, :]
        z = s * heat[None, None, :]
        real = (j < M)[None, :, None]
    else:
        s = acc.reshape(BP, G, SLOT)
        if BASE:
            s = s * scale[None, :, :] * step[:, None, None]
        z = s * heat[:, None, None]
        real = (j < M)[None, None, :]
    if M < SLOT:
        z = tl.where(real, z, float("-inf"))
    if SHIFTED:
        z -= tl.max(z, axis, keep_dims=True)
    e = tl.exp2(z)
    mean = tl.sum(e * s, axis) / tl.sum(e, axis)
    if BANK_FIRST:
        place = means + image[:, None].to(tl.int64) * stride + p[None, :]
        tl.store(place, mean, (image < images)[:, None])
    else:
        place = means + image[None, :].to(tl.int64) * stride + p[:, None]
        tl.store(place, mean, (image < images)[None, :])


@triton.jit
def probe_means_kernel(
    bank, probes, rest, scales, steps, heats, means, images, probe_rows,
    M: tl.constexpr, D: tl.constexpr, G: tl.constexpr, SLOT: tl.constexpr,
    BP: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BASE: tl.constexpr,
    SHIFTED: tl.constexpr, BANK_FIRST: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """means[i, p] = l_tau(probe p; picture i).

    A tile is G pictures of SLOT >= M rows each (the copy engine fills what lies outside with zeros) times BP probes
    and, where BR is not 0, BR more. PARTS 2: the probes' second part, what rounding the first has lost, stands
    `probe_rows` further down. BASE: int8 digits with u = step * (BASE * first + second); 0 for fp16.
    """
    probe_tiles = probe_rows // (BP + BR)
    tiles = tl.cdiv(images, G) * probe_tiles
    kind: tl.constexpr = tl.int32 if BASE else tl.float32
    shape: tl.constexpr = [G * SLOT, BP] if BANK_FIRST else [BP, G * SLOT]
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        p0 = tile % probe_tiles * (BP + BR)
        i0 = tile // probe_tiles * G
        acc = tl.zeros(shape, kind)
        low = acc
        if BR:
            acc_rest = tl.zeros([G * SLOT, BR], kind)
            low_rest = acc_rest
        for k in range(0, D, BK):
            v = bank.load([i0, 0, k]).reshape(G * SLOT, BK)
            acc = _products(v, probes.load([p0, k]), acc, BANK_FIRST)
            if BR:
                acc_rest = _products(v, rest.load([p0 + BP, k]), acc_rest, BANK_FIRST)
            if PARTS == 2 and BASE:
                low = _products(v, probes.load([probe_rows + p0, k]), low, BANK_FIRST)
                if BR:
                    low_rest = _products(v, rest.load([probe_rows + p0 + BP, k]), low_rest, BANK_FIRST)
            elif PARTS == 2:
                acc = _products(v, probes.load([probe_rows + p0, k]), acc, BANK_FIRST)
                if BR:
                    acc_rest = _products(v, rest.load([probe_rows + p0 + BP, k]), acc_rest, BANK_FIRST)
        _soft_means(
            acc, low, p0, i0, scales, steps, heats, means, images, probe_rows,
            M, G, SLOT, BP, BASE, SHIFTED, BANK_FIRST,
        )  # fmt: skip
        if BR:
            _soft_means(
                acc_rest, low_rest, p0 + BP, i0, scales, steps, heats, means, images, probe_rows,
                M, G, SLOT, BR, BASE, SHIFTED, BANK_FIRST,
            )  # fmt: skip


@triton.jit
def weigh_kernel(
    globals_, targets, means, weights, scores, images, probe_rows, stride,
    D: tl.constexpr, BI: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """scores[q, i] = targets[q] . globals[i] + sum_p weights[p, q] means[i, p], for BQ queries.

    `targets` (2, D, BQ) holds each weighted target as fp16 and what that rounding lost, as fp16 again.
    """
    image = tl.program_id(0) * BI + tl.arange(0, BI)
    q = tl.arange(0, BQ)
    inside = image < images
    row = image.to(tl.int64)
    acc = tl.zeros([BI, BQ], tl.float32)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        v = tl.load(globals_ + row[:, None] * D + k[None, :], inside[:, None] & (k < D)[None, :], 0.0)
        first = tl.load(targets + k[:, None] * BQ + q[None, :], (k < D)[:, None], 0.0)
        second = tl.load(targets + D * BQ + k[:, None] * BQ + q[None, :], (k < D)[:, None], 0.0)
        acc = tl.dot(v, first, acc)
        acc = tl.dot(v, second, acc)
    for p0 in range(0, probe_rows, BP):
        p = p0 + tl.arange(0, BP)
        kept = p < probe_rows
        mean = tl.load(means + row[:, None] * probe_rows + p[None, :], inside[:, None] & kept[None, :], 0.0)
        weight = tl.load(weights + p[:, None] * BQ + q[None, :], kept[:, None], 0.0)
        acc = tl.dot(mean, weight, acc, input_precision="tf32x3")
    tl.store(scores + q[None, :].to(tl.int64) * stride + image[:, None], acc, inside[:, None])


@dataclass(frozen=True)
class Tiling:
    """How `probe_means_kernel` cuts its work: found by `benchmarks/match_gpu.py --tune` and stored in TILINGS."""

    rows: int  # bank rows of a tile; its pictures are rows / SLOT
    probes: int  # probes of a tile
    rest: int  # and these after them (bank-first tiles)
    depth: int  # components of each step along d
    warps: int
    stages: int  # steps in flight
    resident: int = 1  # programs a multiprocessor
    flatten: bool = True  # load the next tile during this one's softmax

    @property
    def bank_first(self) -> bool:
        return self.probes + self.rest <= MAX_FEW


def launch_probe_means(bank: Any, scales: Any, packed: Any, means: Any, first: int, count: int, tiling: Tiling) -> None:
    """Fill means (count, probe_rows) for the pictures first .. first + count of a device bank (N, M, d)."""
    locals_, dim = bank.shape[1:]
    slot = max(16, triton.next_power_of_2(locals_))
    group = max(1, tiling.rows // slot)
    part = bank[first : first + count]
    one = max(1, tiling.rest)
    programs = min(processors(bank.device) * tiling.resident, triton.cdiv(count, group) * packed.tiles)
    probe_means_kernel[(programs,)](
        TensorDescriptor.from_tensor(part, [group, slot, tiling.depth]),
        TensorDescriptor.from_tensor(packed.parts, [tiling.probes, tiling.depth]),
        TensorDescriptor.from_tensor(packed.parts, [one, tiling.depth]),
        scales[first : first + count] if scales is not None else packed.heats,
        packed.steps, packed.heats, means, count, packed.rows,
        M=locals_, D=dim, G=group, SLOT=slot, BP=tiling.probes, BR=tiling.rest, BK=tiling.depth,
        PARTS=2 if packed.split else 1, BASE=packed.base, SHIFTED=packed.shifted,
        BANK_FIRST=tiling.bank_first, FLATTEN=tiling.flatten,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip


def processors(device: Any) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1
