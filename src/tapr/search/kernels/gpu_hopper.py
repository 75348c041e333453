# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, no-untyped-call"
"""`probe_means_kernel` for few probes on Hopper GPUs, written in Gluon. The probes stay in shared memory.

With few probes the scan should run at memory bandwidth. But the probes of a tile have almost as many bytes as its
pictures, and fetching them for every tile saturates the cache. Here each program fetches them once and then reads
pictures through a ring of buffers, which the copy engine fills ahead, also during the softmax.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Triton renamed these two after 3.6.
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
meet = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier

LANES = gl.constexpr(2)


@gluon.jit
def _add_both(a, b, c, d):
    return a + c, b + d


@gluon.jit
def _soft_means(
    acc, p0, i0, scale, steps, sharpnesses, means, images, stride,
    M: gl.constexpr, G: gl.constexpr, SLOT: gl.constexpr, BP: gl.constexpr,
    PARTS: gl.constexpr, BASE: gl.constexpr, SHIFTED: gl.constexpr, BANK_FIRST: gl.constexpr,
):  # fmt: skip
    """As in gpu_kernels. `scale` has one number per bank row of the tile."""
    side: gl.constexpr = 1 if BANK_FIRST else 0  # the axis of the probes in acc
    axis: gl.constexpr = 1 if BANK_FIRST else 2
    if PARTS == 2:
        if BANK_FIRST:
            first, second = acc.reshape([G * SLOT, 2, BP]).permute([0, 2, 1]).split()
        else:
            first, second = acc.reshape([2, BP, G * SLOT]).permute([1, 2, 0]).split()
        acc = first * BASE + second if BASE else first + second
    if BASE:
        acc = acc.to(gl.float32)
        acc *= gl.convert_layout(scale, gl.SliceLayout(side, acc.type.layout)).expand_dims(side)
    s = acc.reshape([G, SLOT, BP] if BANK_FIRST else [BP, G, SLOT])
    cube: gl.constexpr = s.type.layout
    flat: gl.constexpr = gl.SliceLayout(axis, cube)  # layout of the means
    p = p0 + gl.arange(0, BP, gl.SliceLayout(1 - side, flat))
    image = i0 + gl.arange(0, G, gl.SliceLayout(side, flat))
    z = s * gl.load(sharpnesses + p).expand_dims(1 - side).expand_dims(axis)
    if M < SLOT:
        j = gl.arange(0, SLOT, gl.SliceLayout(0, gl.SliceLayout(1 + side, cube)))
        z = gl.where((j < M)[None, :, None] if BANK_FIRST else (j < M)[None, None, :], z, float("-inf"))
    if SHIFTED:
        z -= gl.max(z, axis, keep_dims=True)
    e = gl.exp2(z)
    above, below = gl.reduce((e * s, e), axis, _add_both)
    mean = above / below * gl.load(steps + p).expand_dims(1 - side)
    place = means + image.to(gl.int64).expand_dims(side) * stride + p.expand_dims(1 - side)
    gl.store(place, mean, (image < images).expand_dims(side))


@gluon.jit
def _scales(scales, tile, images, M: gl.constexpr, G: gl.constexpr, SLOT: gl.constexpr, layout: gl.constexpr):
    row = gl.arange(0, G * SLOT, layout)
    image = tile * G + row // SLOT
    return gl.load(scales + image * M + row % SLOT, (image < images) & (row % SLOT < M), 0.0)


@gluon.jit
def _produce(lane, copying, D: gl.constexpr, BUFFERS: gl.constexpr):
    """Copy this lane's pictures into its ring of buffers, block by block, as buffers become free."""
    bank, ring, full, empty, images = copying
    G: gl.constexpr = bank.block_type.shape[0]
    BK: gl.constexpr = bank.block_type.shape[2]
    KSTEPS: gl.constexpr = (D + BK - 1) // BK
    b = 0
    phase = 1
    for tile in range(gl.program_id(0) * LANES + lane, gl.cdiv(images, G), gl.num_programs(0) * LANES):
        for k in range(KSTEPS):
            at = lane * BUFFERS + b
            mbarrier.wait(empty.index(at), phase)
            mbarrier.expect(full.index(at), bank.block_type.nbytes)
            copy_in(bank, [tile * G, 0, k * BK], full.index(at), ring.index(at))
            b += 1
            phase = phase ^ (b // BUFFERS)
            b = b % BUFFERS


@gluon.jit
def _consume(
    lane, calculating, M: gl.constexpr, D: gl.constexpr, BP: gl.constexpr, BR: gl.constexpr, PARTS: gl.constexpr,
    BASE: gl.constexpr, SHIFTED: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """Multiply arriving blocks with the probes in shared memory; after a picture's last block, write its means."""
    bank, ring, full, empty, held, held_rest, scales, steps, sharpnesses, means, images, probe_rows = calculating
    G: gl.constexpr = bank.block_type.shape[0]
    SLOT: gl.constexpr = bank.block_type.shape[1]
    BK: gl.constexpr = bank.block_type.shape[2]
    KSTEPS: gl.constexpr = (D + BK - 1) // BK
    kind: gl.constexpr = gl.int32 if BASE else gl.float32
    deep: gl.constexpr = 32 if BASE else 16
    BANK_FIRST: gl.constexpr = BP < 64  # with fewer than 64 probes the bank is the tall side of the product
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PARTS * BP if BANK_FIRST else G * SLOT, deep])
    slim: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PARTS * (BR or BP), deep])
    b = 0
    phase = 0
    for tile in range(gl.program_id(0) * LANES + lane, gl.cdiv(images, G), gl.num_programs(0) * LANES):
        acc = gl.zeros([G * SLOT, PARTS * BP] if BANK_FIRST else [PARTS * BP, G * SLOT], kind, wide)
        if BR:
            acc_rest = gl.zeros([G * SLOT, PARTS * BR], kind, slim)
        scale = 0.0
        scale_rest = 0.0
        if BASE:  # requested now, needed after the products
            scale = _scales(scales, tile, images, M, G, SLOT, gl.SliceLayout(1 if BANK_FIRST else 0, wide))
            if BR:
                scale_rest = _scales(scales, tile, images, M, G, SLOT, gl.SliceLayout(1, slim))
        last = lane * BUFFERS
        for k in range(KSTEPS):
            at = lane * BUFFERS + b
            mbarrier.wait(full.index(at), phase)
            v = ring.index(at).reshape([G * SLOT, BK])
            if BANK_FIRST:
                acc = warpgroup_mma(v, held.index(k).permute((1, 0)), acc, is_async=True)
            else:
                acc = warpgroup_mma(held.index(k), v.permute((1, 0)), acc, is_async=True)
            if BR:
                acc_rest = warpgroup_mma(v, held_rest.index(k).permute((1, 0)), acc_rest, is_async=True)
                acc, acc_rest = warpgroup_mma_wait(2, deps=(acc, acc_rest))
            else:
                acc = warpgroup_mma_wait(1, deps=(acc,))
            meet()  # all warps are done with the previous block
            mbarrier.arrive(empty.index(last), count=1, pred=k > 0)
            last = at
            b += 1
            phase = phase ^ (b // BUFFERS)
            b = b % BUFFERS
        if BR:
            acc, acc_rest = warpgroup_mma_wait(0, deps=(acc, acc_rest))
        else:
            acc = warpgroup_mma_wait(0, deps=(acc,))
        meet()
        mbarrier.arrive(empty.index(last), count=1)
        _soft_means(acc, 0, tile * G, scale, steps, sharpnesses, means, images, probe_rows,
                    M, G, SLOT, BP, PARTS, BASE, SHIFTED, BANK_FIRST)  # fmt: skip
        if BR:
            _soft_means(acc_rest, BP, tile * G, scale_rest, steps, sharpnesses, means, images, probe_rows,
                        M, G, SLOT, BR, PARTS, BASE, SHIFTED, True)  # fmt: skip


@gluon.jit(do_not_specialize=["images"])
def held_probes_kernel(
    bank, probes, rest, scales, steps, sharpnesses, means, images, probe_rows,
    M: gl.constexpr, D: gl.constexpr, BP: gl.constexpr, BR: gl.constexpr,
    PARTS: gl.constexpr, BASE: gl.constexpr, SHIFTED: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """means[i, p] = l_tau(probe p; picture i) for BP + BR probes; arguments as in gpu_kernels.

    Two lanes work on different pictures; each has one warp that copies and four that compute. While one lane is in its
    softmax, the other keeps the tensor cores busy. The first 64 probes are the tall side of their product, so that a
    softmax runs along a thread's own registers. The rest are the narrow side of theirs.
    """
    G: gl.constexpr = bank.block_type.shape[0]
    SLOT: gl.constexpr = bank.block_type.shape[1]
    BK: gl.constexpr = bank.block_type.shape[2]
    KSTEPS: gl.constexpr = (D + BK - 1) // BK
    held = gl.allocate_shared_memory(bank.dtype, [KSTEPS, PARTS * BP, BK], probes.layout)
    held_rest = held
    if BR:
        held_rest = gl.allocate_shared_memory(bank.dtype, [KSTEPS, PARTS * BR, BK], rest.layout)
    ring = gl.allocate_shared_memory(bank.dtype, [LANES * BUFFERS, G, SLOT, BK], bank.layout)
    full = gl.allocate_shared_memory(gl.int64, [LANES * BUFFERS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [LANES * BUFFERS, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for b in gl.static_range(LANES * BUFFERS):
        mbarrier.init(full.index(b), count=1)
        mbarrier.init(empty.index(b), count=1)
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, KSTEPS * (probes.block_type.nbytes + (rest.block_type.nbytes if BR else 0)))
    for c in gl.static_range(KSTEPS):
        copy_in(probes, [0, c * BK], ready, held.index(c))
        if BR:
            copy_in(rest, [PARTS * BP, c * BK], ready, held_rest.index(c))
    mbarrier.wait(ready, 0)
    calculating = (
        bank, ring, full, empty, held, held_rest, scales, steps, sharpnesses, means, images, probe_rows
    )  # fmt: skip
    copying = (bank, ring, full, empty, images)
    gl.warp_specialize(
        [
            (_consume, (0, calculating, M, D, BP, BR, PARTS, BASE, SHIFTED, BUFFERS)),
            (_consume, (1, calculating, M, D, BP, BR, PARTS, BASE, SHIFTED, BUFFERS)),
            (_produce, (0, copying, D, BUFFERS)),
            (_produce, (1, copying, D, BUFFERS)),
        ],
        [4, 1, 1],
        [232, 24, 24],  # registers of the other warps; the first gets the rest
    )


@lru_cache
def _layout(shape: tuple[int, ...], codes: bool) -> Any:
    return gl.NVMMASharedLayout.get_default_for(list(shape), gl.int8 if codes else gl.float16)


def launch(
    programs: int,
    bank: Any,
    parts: Any,
    shapes: tuple[list[int], ...],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    buffers: int,
) -> None:
    """`shapes`: the block sizes of copies from the bank, the first probes and the rest."""

    def described(tensor: Any, shape: list[int]) -> Any:
        return TensorDescriptor.from_tensor(tensor, shape, _layout(tuple(shape), constants["BASE"] > 0))

    pictures, first, rest = shapes
    held_probes_kernel[(programs,)](
        described(bank, pictures), described(parts, first), described(parts, rest if rest[0] else first),
        *arguments, **constants, BUFFERS=buffers,
    )  # fmt: skip
