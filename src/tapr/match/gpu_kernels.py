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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.tools.tensor_descriptor import TensorDescriptor

from tapr.query import CompiledQuery

MAX_LOCALS = 256  # the copy engine's largest box side
MAX_FEW = 128  # up to so many probes the bank is the tall side
WORKSPACE = 1 << 27  # bytes of means between the two kernels
SAFE_EXPONENT = 100.0  # 2 ** this, summed over MAX_LOCALS, stays far inside float32: no maximum need be subtracted
SPLIT_ABOVE = 3e-5  # estimated error of a score from fp16 probes, above which they travel in two parts


@triton.jit
def _products(v, p, acc, BANK_FIRST: tl.constexpr):
    if BANK_FIRST:
        acc = tl.dot(v, p.T, acc, out_dtype=acc.dtype)
    else:
        acc = tl.dot(p, v.T, acc, out_dtype=acc.dtype)
    return acc


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
    """How `probe_means_kernel` cuts its work."""

    rows: int  # bank rows of a tile; its pictures are rows / SLOT
    depth: int  # components of each step along d
    warps: int
    stages: int  # steps in flight
    resident: int = 1  # programs a multiprocessor
    flatten: bool = True  # load the next tile during this one's softmax


# Probes of a tile, and what follows them in the same tile; the last bucket is cut into as many tiles as it needs.
BUCKETS = {16: (16, 0), 32: (32, 0), 64: (64, 0), 80: (64, 16), 96: (64, 32), 128: (128, 0), 0: (128, 0)}

# (precision, bucket) and, where it differs, (precision, bucket, M, d); H200, `benchmarks/match_gpu.py --tune`.
TILINGS: dict[tuple[Any, ...], Tiling] = {
    ("fp16", 16): Tiling(256, 64, 8, 4),
    ("fp16", 32): Tiling(256, 64, 8, 4),
    ("fp16", 64): Tiling(256, 64, 8, 4),
    ("fp16", 80): Tiling(256, 64, 8, 4),
    ("fp16", 96): Tiling(256, 64, 8, 4),
    ("fp16", 128): Tiling(256, 64, 8, 4),
    ("fp16", 0): Tiling(256, 64, 8, 4),
    ("int8", 16): Tiling(256, 128, 8, 4),
    ("int8", 32): Tiling(256, 128, 8, 4),
    ("int8", 64): Tiling(256, 128, 8, 3),
    ("int8", 80): Tiling(256, 128, 8, 3),
    ("int8", 96): Tiling(128, 128, 8, 3),
    ("int8", 128): Tiling(128, 128, 8, 3),
    ("int8", 0): Tiling(128, 128, 8, 4),
}


def bucket_of(probes: int) -> int:
    return next((size for size in BUCKETS if probes <= size), 0)


def tiling_for(precision: str, probes: int, locals_: int, dim: int, split: bool) -> Tiling:
    key = (precision, bucket_of(probes))
    tiling = TILINGS.get((*key, locals_, dim), TILINGS[key])
    if split and precision == "fp16":  # twice the probes travel with each step
        return replace(tiling, stages=min(tiling.stages, 3))
    return tiling


@dataclass(frozen=True, eq=False)
class Packed:
    """The probes of several queries as one matrix on the device, padded to whole tiles with zeros."""

    parts: Any  # (1 or 2 times rows, d) fp16 or int8
    steps: Any  # (rows,) int8: what a unit of the second digit stands for
    heats: Any  # (rows,) log2(e) / tau
    weights: Any  # (rows, BQ)
    targets: Any  # (2, d, BQ) fp16
    rows: int
    count: int  # probes, without the padding
    queries: int
    split: bool  # parts holds two parts
    base: int  # of the two int8 digits; 0 for fp16
    reach: float  # largest |heat * probe|, to be multiplied by the longest local vector

    @property
    def precision(self) -> str:
        return "int8" if self.base else "fp16"


def pack(queries: Sequence[CompiledQuery], dim: int, precision: str, device: Any) -> Packed:
    """Prepare queries for a bank of this (padded) dim and precision; done in NumPy, uploaded once."""
    own_dim = queries[0].dim
    probes = np.concatenate([query.probes for query in queries]).astype(np.float32)  # (n, d)
    signed = np.concatenate([query.weights for query in queries]).astype(np.float32)
    owner = np.repeat(np.arange(len(queries)), [len(query.probes) for query in queries])
    count = len(probes)
    first, rest = BUCKETS[bucket_of(count)]
    rows = -(-count // (first + rest)) * (first + rest)
    width = max(16, triton.next_power_of_2(len(queries)))

    padded = np.zeros((rows, dim), np.float32)
    padded[:count, :own_dim] = probes
    heats = np.zeros(rows, np.float32)
    heats[:count] = np.array([np.log2(np.e) / query.tau for query in queries], np.float32)[owner]
    weights = np.zeros((rows, width), np.float32)
    weights[np.arange(count), owner] = signed
    targets = np.zeros((dim, width), np.float32)
    for column, query in enumerate(queries):
        targets[:own_dim, column] = np.float32(query.target_weight) * query.target

    base, steps = 0, heats
    parts: NDArray[Any]
    if precision == "int8":
        base = _digit_base(dim)
        parts, steps = _digits(padded, base)
        split = True
    else:
        parts = _halves(padded)
        split = _needs_split(probes, padded[:count, :own_dim] - parts[0][:count, :own_dim], signed)
        parts = parts if split else parts[:1]

    def to(array: NDArray[Any]) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    lengths = np.linalg.norm(probes, axis=1) * heats[:count]
    return Packed(
        parts=to(parts.reshape(-1, dim)), steps=to(steps), heats=to(heats), weights=to(weights),
        targets=to(_halves(targets)), rows=rows, count=count, queries=len(queries), split=split, base=base,
        reach=float(lengths.max(initial=0.0)),
    )  # fmt: skip


def _halves(array: NDArray[np.float32]) -> NDArray[np.float16]:
    """-> (2, ...) fp16: the rounded numbers and what the rounding lost."""
    first = array.astype(np.float16)
    return np.stack([first, (array - first).astype(np.float16)])


def _digit_base(dim: int) -> int:
    """The largest power of two up to 128 with which no sum of d products of two digits and a code leaves int32."""
    base = 128
    while dim * 127 * (127 * base + base // 2) >= 2**31:
        base //= 2
    return base


def _digits(probes: NDArray[np.float32], base: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """u = step * (base * first + second): (n, d) -> (2, n, d) int8 digits and steps (n,)."""
    largest = np.abs(probes).max(axis=1, initial=0.0)
    steps = np.where(largest > 0, largest / (127 * base), 1).astype(np.float32)
    units = np.rint(probes.astype(np.float64) / steps[:, None])
    first = np.clip(np.rint(units / base), -127, 127)
    return np.stack([first, units - base * first]).astype(np.int8), steps


def _needs_split(probes: NDArray[np.float32], lost: NDArray[np.float32], weights: NDArray[np.float32]) -> bool:
    """Whether rounding the probes to fp16 could show in a score: lost . v for v spread out or like the probe."""
    spread = probes.astype(np.float64) ** 2 + 1 / max(1, probes.shape[1])
    return bool((np.abs(weights) * np.sqrt((lost**2 * spread).sum(axis=1))).sum() > SPLIT_ABOVE)


def score_rows(
    bank: Any, scales: Any, globals_: Any, packed: Packed, longest: float, tiling: Tiling | None = None
) -> Any:
    """Scores (Q, N) there, of a bank (N, M, d) fp16, or int8 with scales (N, M), and its globals (N, d)."""
    images, locals_, dim = bank.shape
    scores = torch.empty((packed.weights.shape[1], images), dtype=torch.float32, device=bank.device)
    if tiling is None:
        tiling = tiling_for(packed.precision, packed.count, locals_, dim, packed.split)
    shifted = not packed.reach * longest < SAFE_EXPONENT
    chunk = max(4096, WORKSPACE // (4 * max(1, packed.rows)))
    means = torch.empty((min(chunk, images), packed.rows), dtype=torch.float32, device=bank.device)
    for start in range(0, images, chunk):
        part = slice(start, min(images, start + chunk))
        if packed.rows:
            launch_probe_means(bank[part], None if scales is None else scales[part], packed, means, shifted, tiling)
        launch_weigh(globals_[part], packed, means, scores[:, part])
    return scores[: packed.queries]


def launch_probe_means(bank: Any, scales: Any, packed: Packed, means: Any, shifted: bool, tiling: Tiling) -> None:
    """means (N, rows) <- l_tau of every probe and every picture of bank (N, M, d)."""
    images, locals_, dim = bank.shape
    probes, rest = BUCKETS[bucket_of(packed.count)]
    slot = max(16, triton.next_power_of_2(locals_))
    group = max(1, tiling.rows // slot)
    tiles = triton.cdiv(images, group) * (packed.rows // (probes + rest))
    programs = processors(bank.device) * tiling.resident if tiling.flatten or tiling.resident > 1 else tiles
    probe_means_kernel[(min(programs, tiles),)](
        TensorDescriptor.from_tensor(bank, [group, slot, tiling.depth]),
        TensorDescriptor.from_tensor(packed.parts, [probes, tiling.depth]),
        TensorDescriptor.from_tensor(packed.parts, [rest or probes, tiling.depth]),
        packed.heats if scales is None else scales, packed.steps, packed.heats, means, images, packed.rows,
        M=locals_, D=dim, G=group, SLOT=slot, BP=probes, BR=rest, BK=tiling.depth,
        PARTS=2 if packed.split else 1, BASE=packed.base, SHIFTED=shifted,
        BANK_FIRST=packed.count <= MAX_FEW, FLATTEN=tiling.flatten,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip


def launch_weigh(globals_: Any, packed: Packed, means: Any, scores: Any) -> None:
    images, dim = globals_.shape
    pictures = 64
    weigh_kernel[(triton.cdiv(images, pictures),)](
        globals_, packed.targets, means, packed.weights, scores, images, packed.rows, scores.stride(0),
        D=dim, BI=pictures, BQ=packed.weights.shape[1], BK=64, BP=64 if packed.rows >= 64 else 16, num_warps=4,
    )  # fmt: skip


@lru_cache
def processors(device: Any) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1
