# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, no-untyped-call"
"""The fused Triton kernels: l_tau of every probe and picture in one pass over the bank, then the weighted sums.

`probe_means_kernel` multiplies a tile of probes with the local vectors of a few pictures on the tensor cores and
computes the softmax means on the chip. Of N x n x M products only N x n means are written. `target_kernel` multiplies
the targets with the global vectors, and `weigh_kernel` adds the weighted means.
The cost depends on which side of the product the bank is. Up to 128 probes the scan is limited by memory: the bank is
the tall side, and the probe side is as small as possible (72 probes: 64 + 16). On Hopper the probes also stay in shared
memory (gpu_hopper.py). With more probes the scan is limited by the tensor cores: the probes of all queries are rows of
128-row tiles, and each softmax runs along a thread's own registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tapr.search.kernels.gpu_pack import MAX_FEW, PackedQueries

WORKSPACE = 1 << 27  # bytes of means passed between the two kernels
HOPPER = (9, 0)
SHARED_MEMORY = 232_448  # bytes per program on Hopper


@triton.jit
def _products(v, p, acc, BANK_FIRST: tl.constexpr):
    return tl.dot(v, p.T, acc, out_dtype=acc.dtype) if BANK_FIRST else tl.dot(p, v.T, acc, out_dtype=acc.dtype)


@triton.jit
def _soft_means(
    acc, p0, i0, scales, steps, sharpnesses, means, images, stride,
    M: tl.constexpr, G: tl.constexpr, SLOT: tl.constexpr, BP: tl.constexpr,
    PARTS: tl.constexpr, BASE: tl.constexpr, SHIFTED: tl.constexpr, BANK_FIRST: tl.constexpr,
):  # fmt: skip
    """The softmax means of one tile of products: sum_j e_j s_j / sum_j e_j with e = 2 ** (sharpness * s), per picture.

    Products s are in units of the probe's step, and so are `sharpnesses`; the mean is scaled back at the end.
    """
    axis: tl.constexpr = 1 if BANK_FIRST else 2
    p = p0 + tl.arange(0, BP)
    image = i0 + tl.arange(0, G)
    j = tl.arange(0, SLOT)
    if PARTS == 2:
        if BANK_FIRST:
            first, second = acc.reshape(G * SLOT, 2, BP).permute(0, 2, 1).split()
        else:
            first, second = acc.reshape(2, BP, G * SLOT).permute(1, 2, 0).split()
        acc = first * BASE + second if BASE else first + second
    if BASE:
        acc = acc.to(tl.float32)
        scale = tl.load(scales + image[:, None] * M + j[None, :], (image < images)[:, None] & (j < M)[None, :], 0.0)
    sharpness = tl.load(sharpnesses + p)
    if BANK_FIRST:
        s = acc.reshape(G, SLOT, BP)
        if BASE:
            s *= scale[:, :, None]
        z = s * sharpness[None, None, :]
        real = (j < M)[None, :, None]
    else:
        s = acc.reshape(BP, G, SLOT)
        if BASE:
            s *= scale[None, :, :]
        z = s * sharpness[:, None, None]
        real = (j < M)[None, None, :]
    if M < SLOT:
        z = tl.where(real, z, float("-inf"))
    if SHIFTED:
        z -= tl.max(z, axis, keep_dims=True)
    e = tl.exp2(z)
    mean = tl.sum(e * s, axis) / tl.sum(e, axis)
    step = tl.load(steps + p)
    if BANK_FIRST:
        mean *= step[None, :]
        place = means + image[:, None].to(tl.int64) * stride + p[None, :]
        tl.store(place, mean, (image < images)[:, None])
    else:
        mean *= step[:, None]
        place = means + image[None, :].to(tl.int64) * stride + p[:, None]
        tl.store(place, mean, (image < images)[None, :])


@triton.jit(do_not_specialize=["images"])
def probe_means_kernel(
    bank, probes, rest, scales, steps, sharpnesses, means, images, probe_rows,
    M: tl.constexpr, D: tl.constexpr, G: tl.constexpr, SLOT: tl.constexpr,
    BP: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BASE: tl.constexpr,
    SHIFTED: tl.constexpr, BANK_FIRST: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """means[i, p] = l_tau(probe p; picture i).

    A tile is G pictures of SLOT >= M rows each (the copy engine pads with zeros), times BP probes and, if BR is not 0,
    BR more. With PARTS = 2, the second parts of the probes follow the tile (see gpu_pack).
    """
    probe_tiles = probe_rows // (BP + BR)
    tiles = tl.cdiv(images, G) * probe_tiles
    kind: tl.constexpr = tl.int32 if BASE else tl.float32
    shape: tl.constexpr = [G * SLOT, PARTS * BP] if BANK_FIRST else [PARTS * BP, G * SLOT]
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        p0 = tile % probe_tiles * (BP + BR)
        i0 = tile // probe_tiles * G
        acc = tl.zeros(shape, kind)
        if BR:
            acc_rest = tl.zeros([G * SLOT, PARTS * BR], kind)
        for k in range(0, D, BK):
            v = bank.load([i0, 0, k]).reshape(G * SLOT, BK)
            acc = _products(v, probes.load([PARTS * p0, k]), acc, BANK_FIRST)
            if BR:
                acc_rest = _products(v, rest.load([PARTS * (p0 + BP), k]), acc_rest, BANK_FIRST)
        _soft_means(
            acc, p0, i0, scales, steps, sharpnesses, means, images, probe_rows,
            M, G, SLOT, BP, PARTS, BASE, SHIFTED, BANK_FIRST,
        )  # fmt: skip
        if BR:
            _soft_means(
                acc_rest, p0 + BP, i0, scales, steps, sharpnesses, means, images, probe_rows,
                M, G, SLOT, BR, PARTS, BASE, SHIFTED, BANK_FIRST,
            )  # fmt: skip


@triton.jit(do_not_specialize=["images", "queries", "stride"])
def target_kernel(
    globals_, targets, scores, images, queries, stride, D: tl.constexpr, BD: tl.constexpr, BI: tl.constexpr
):  # fmt: skip
    """scores[q, i] = targets[q] . globals[i], query by query: the bits do not depend on the other queries."""
    image = tl.program_id(0) * BI + tl.arange(0, BI)
    inside = image < images
    k = tl.arange(0, BD)
    v = tl.load(globals_ + image[:, None].to(tl.int64) * D + k[None, :], inside[:, None] & (k < D)[None, :], 0.0)
    v = v.to(tl.float32)
    for _ in range(queries):
        t = tl.load(targets + k, k < D, 0.0)
        tl.store(scores + image, tl.sum(v * t[None, :], 1), inside)
        targets += D
        scores += stride


@triton.jit(do_not_specialize=["images", "queries"])
def weigh_kernel(
    means, weights, scores, images, queries, probe_rows, stride, BI: tl.constexpr, BQ: tl.constexpr, BP: tl.constexpr
):  # fmt: skip
    """scores[q, i] += sum_p weights[p, q] means[i, p]. `weights` has BQ columns, of which `queries` are used."""
    image = tl.program_id(0) * BI + tl.arange(0, BI)
    q = tl.arange(0, BQ)
    inside = image < images
    row = image.to(tl.int64)
    acc = tl.zeros([BI, BQ], tl.float32)
    for p0 in range(0, probe_rows, BP):
        p = p0 + tl.arange(0, BP)
        kept = p < probe_rows
        mean = tl.load(means + row[:, None] * probe_rows + p[None, :], inside[:, None] & kept[None, :], 0.0)
        weight = tl.load(weights + p[:, None] * BQ + q[None, :], kept[:, None], 0.0)
        acc = tl.dot(mean, weight, acc, input_precision="tf32x3")
    place = scores + q[None, :].to(tl.int64) * stride + image[:, None]
    real = inside[:, None] & (q < queries)[None, :]
    tl.store(place, tl.load(place, real, 0.0) + acc, real)


@triton.jit(do_not_specialize=["images"])
def weigh_one_kernel(
    means, weights, scores, images, P: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr, BI: tl.constexpr
):  # fmt: skip
    """`weigh_kernel` for a single query: its weights are the first of BQ columns."""
    image = tl.program_id(0) * BI + tl.arange(0, BI)
    inside = image < images
    p = tl.arange(0, BP)
    place = means + image[:, None].to(tl.int64) * P + p[None, :]
    mean = tl.load(place, inside[:, None] & (p < P)[None, :], 0.0)
    weighed = tl.sum(mean * tl.load(weights + p * BQ, p < P, 0.0)[None, :], 1)
    tl.store(scores + image, tl.load(scores + image, inside, 0.0) + weighed, inside)


@dataclass(frozen=True)
class Tiling:
    """Tile sizes. `benchmarks/tune_gpu.py` finds good ones."""

    rows: int  # bank rows per tile: pictures times the next power of two above M
    depth: int  # components per step along d
    warps: int
    stages: int  # pipelined steps
    programs: int = 1  # per multiprocessor; 0: one per tile
    flatten: bool = False  # load the next tile during this one's softmax
    held: bool = False  # the probes stay in shared memory (gpu_hopper.py)


# By (precision, bucket), or (precision, bucket, M, d) for special shapes. Tuned on an H200, 2026-11-15: fp16 and int8x2
# with 72 probes, fp16 and int8 with 1,152, M 64 and d 768; the others follow these.
TILINGS: dict[tuple[Any, ...], Tiling] = {
    ("fp16", 16): Tiling(128, 64, 4, 4, 0),
    ("fp16", 32): Tiling(128, 64, 4, 4, 0),
    ("fp16", 64): Tiling(128, 64, 4, 4, 0),
    ("fp16", 72): Tiling(128, 64, 4, 4, 0),
    ("fp16", 80): Tiling(128, 64, 4, 4, 0),
    ("fp16", 96): Tiling(128, 64, 4, 3, 0),
    ("fp16", 128): Tiling(128, 64, 8, 3, 0),
    ("fp16", 0): Tiling(128, 64, 4, 3, 2, True),
    ("fp16x2", 16): Tiling(128, 64, 4, 4, 0),
    ("fp16x2", 32): Tiling(128, 64, 4, 4, 0),
    ("fp16x2", 64): Tiling(128, 64, 4, 3, 0),
    ("fp16x2", 72): Tiling(128, 64, 8, 3, 0),
    ("fp16x2", 80): Tiling(128, 64, 8, 3, 0),
    ("fp16x2", 96): Tiling(128, 64, 8, 3, 0),
    ("fp16x2", 128): Tiling(128, 64, 8, 3, 0),
    ("fp16x2", 0): Tiling(128, 64, 8, 3, 0),
    ("int8x2", 16): Tiling(128, 128, 4, 3, 2),
    ("int8x2", 32): Tiling(128, 128, 4, 3, 2),
    ("int8x2", 64): Tiling(128, 128, 4, 3, 2),
    ("int8x2", 72): Tiling(128, 128, 4, 3, 2, True),
    ("int8x2", 80): Tiling(128, 128, 4, 3, 2, True),
    ("int8x2", 96): Tiling(128, 128, 8, 3, 0),
    ("int8x2", 128): Tiling(128, 128, 8, 3, 0),
    ("int8x2", 0): Tiling(128, 128, 8, 4, 1, True),
}
# one-digit int8 is used for many queries; its small last batches use the tiling of two digits
TILINGS |= {("int8", bucket): tiling for (precision, bucket), tiling in TILINGS.items() if precision == "int8x2"}
TILINGS["int8", 0] = Tiling(128, 128, 4, 3, 2, True)
# For gpu_hopper: bank rows per lane and tile, the best first. With int8, two pictures share a read.
HELD_ROWS = {"fp16": (64,), "fp16x2": (64,), "int8x2": (128, 64)}
HELD_LANES = 2  # pictures in flight
HELD_BUFFERS = (3, 8)  # buffers per lane: minimum, maximum


def tiling_for(packed: PackedQueries, locals_: int, dim: int, capability: tuple[int, int]) -> Tiling:
    """The tiling of this shape; or probes in shared memory if they fit; or the bucket's."""
    key = (packed.precision, packed.bucket)
    held = held_tiling(packed, locals_, dim) if capability == HOPPER and has_gluon() else None
    return TILINGS.get((*key, locals_, dim)) or held or TILINGS[key]


def held_tiling(packed: PackedQueries, locals_: int, dim: int) -> Tiling | None:
    """For gpu_hopper: the tiling with as many buffers as fit shared memory beside the probes; None if too few fit."""
    depth = 128 // packed.parts.element_size()
    spare = SHARED_MEMORY - 8192 - packed.parts.shape[0] * triton.cdiv(dim, depth) * 128
    for rows in HELD_ROWS.get(packed.precision, ()):
        buffers = min(HELD_BUFFERS[1], spare // (HELD_LANES * rows * 128))
        if packed.bucket and locals_ <= 64 and buffers >= HELD_BUFFERS[0]:
            return Tiling(rows, depth, 4, buffers, held=True)
    return None


def score_rows(bank: Any, scales: Any, globals_: Any, packed: PackedQueries, tiling: Tiling | None = None) -> Any:
    """Scores (Q, N) on the device, for a bank (N, M, d) in fp16, or int8 with scales (N, M), and its globals (N, d)."""
    images, locals_, dim = bank.shape
    scores = torch.empty((packed.queries, images), dtype=torch.float32, device=bank.device)
    if not packed.rows:
        launch_targets(globals_, packed, scores)
        return scores
    tiling = tiling or tiling_for(packed, locals_, dim, capability_of(bank.device))
    chunk = max(4096, WORKSPACE // (4 * packed.rows) // 16 * 16)  # chunks start at aligned rows
    means = torch.empty((min(chunk, images), packed.rows), dtype=torch.float32, device=bank.device)
    for start in range(0, images, chunk):
        part = slice(start, min(images, start + chunk))
        launch_probe_means(bank[part], None if scales is None else scales[part], packed, means, tiling)
        if start == 0:  # queued after the long kernel, so that it starts earlier
            launch_targets(globals_, packed, scores)
        launch_weigh(packed, means, scores[:, part])
    return scores


def launch_targets(globals_: Any, packed: PackedQueries, scores: Any) -> None:
    """scores (Q, N) <- targets . globals (N, d)."""
    images, dim = globals_.shape
    target_kernel[(triton.cdiv(images, 16),)](
        globals_, packed.targets, scores, images, packed.queries, scores.stride(0),
        D=dim, BD=triton.next_power_of_2(dim), BI=16, num_warps=4,
    )  # fmt: skip


def launch_probe_means(bank: Any, scales: Any, packed: PackedQueries, means: Any, tiling: Tiling) -> None:
    """means (N, rows) <- l_tau of every probe and every picture of bank (N, M, d)."""
    images, locals_, dim = bank.shape
    slot = max(16, triton.next_power_of_2(locals_))
    group = max(1, tiling.rows // slot)
    tiles = triton.cdiv(images, group) * packed.tiles
    programs = min(tiles, processors(bank.device) * tiling.programs) if tiling.programs else tiles
    arguments = (
        packed.sharpnesses if scales is None else scales, packed.steps, packed.sharpnesses, means, images, packed.rows
    )  # fmt: skip
    shapes = ([group, slot, tiling.depth], *([packed.pieces * n, tiling.depth] for n in (packed.first, packed.rest)))
    constants = {
        "M": locals_, "D": dim, "BP": packed.first, "BR": packed.rest, "PARTS": packed.pieces, "BASE": packed.base,
        "SHIFTED": packed.shifted, "num_warps": tiling.warps,
    }  # fmt: skip
    if tiling.held:
        from tapr.search.kernels import gpu_hopper

        programs = min(triton.cdiv(tiles, HELD_LANES), processors(bank.device))
        gpu_hopper.launch(programs, bank, packed.parts, shapes, arguments, constants, tiling.stages)
        return
    probe_means_kernel[(programs,)](
        TensorDescriptor.from_tensor(bank, shapes[0]),
        TensorDescriptor.from_tensor(packed.parts, shapes[1]),
        TensorDescriptor.from_tensor(packed.parts, shapes[2] if packed.rest else shapes[1]),
        *arguments, **constants, G=group, SLOT=slot, BK=tiling.depth, BANK_FIRST=packed.count <= MAX_FEW,
        FLATTEN=tiling.flatten, num_stages=tiling.stages,
    )  # fmt: skip


def launch_weigh(packed: PackedQueries, means: Any, scores: Any) -> None:
    """scores (Q, N) += weights . means (N, rows)."""
    images, width = scores.shape[1], packed.weights.shape[1]
    if packed.queries == 1 and packed.count <= MAX_FEW:
        weigh_one_kernel[(triton.cdiv(images, 16),)](
            means, packed.weights, scores, images,
            P=packed.rows, BP=triton.next_power_of_2(packed.rows), BQ=width, BI=16, num_warps=4,
        )  # fmt: skip
        return
    weigh_kernel[(triton.cdiv(images, 64),)](
        means, packed.weights, scores, images, packed.queries, packed.rows, scores.stride(0),
        BI=64, BQ=width, BP=32, num_warps=4, num_stages=4,
    )  # fmt: skip


@lru_cache
def has_gluon() -> bool:
    """Whether this Triton has the Gluon features that gpu_hopper uses; they are new and still change."""
    try:
        from tapr.search.kernels import gpu_hopper  # noqa: F401
    except (ImportError, AttributeError):
        return False
    return True


@lru_cache
def processors(device: Any) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


@lru_cache
def capability_of(device: Any) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
