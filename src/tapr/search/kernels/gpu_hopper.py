# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, no-untyped-call"
"""`probe_means_kernel` for few probes on Hopper GPUs, in Gluon: the probes stay in shared memory.

With few probes the scan should run as fast as memory delivers the bank, but a tile's probes are nearly as many bytes
as its pictures: fetched again for every tile they fill the way from the cache. Here each program fetches them once,
then reads its pictures through a ring of buffers that the copy engine fills ahead, during the softmax too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Two names that Triton changed after 3.6.
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
    """As in gpu_kernels. `scale` is one number for each bank row of the tile."""
    side: gl.constexpr = 1 if BANK_FIRST else 0  # the probes' side of acc
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
    flat: gl.constexpr = gl.SliceLayout(axis, cube)  # of the means
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
    """Copy this lane's pictures into its buffers of the ring, piece after piece, as they come free."""
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
    """Multiply what arrives with the held probes; after a picture's last piece, its means."""
    bank, ring, full, empty, held, held_rest, scales, steps, sharpnesses, means, images, probe_rows = calculating
    G: gl.constexpr = bank.block_type.shape[0]
    SLOT: gl.constexpr = bank.block_type.shape[1]
    BK: gl.constexpr = bank.block_type.shape[2]
    KSTEPS: gl.constexpr = (D + BK - 1) // BK
    kind: gl.constexpr = gl.int32 if BASE else gl.float32
    deep: gl.constexpr = 32 if BASE else 16
    BANK_FIRST: gl.constexpr = BP < 64  # fewer probes cannot be the tall side
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
        if BASE:  # asked for now, needed after the products
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
            meet()  # every warp has done with the piece before this one
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

    Two lanes, each a warp that copies and four that calculate, work on different pictures: while one is at its
    softmax the other keeps the tensor cores busy. The first 64 probes are the tall side of their product, so that a
    softmax runs along a thread's own registers; the rest are the narrow side of theirs, cut as small as they are.
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
        [232, 24, 24],  # registers of these; the first has what they leave
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
    """`shapes`: what one copy brings of the bank, of the first probes of the tile and of the rest of them."""

    def described(tensor: Any, shape: list[int]) -> Any:
        return TensorDescriptor.from_tensor(tensor, shape, _layout(tuple(shape), constants["BASE"] > 0))

    pictures, first, rest = shapes
    held_probes_kernel[(programs,)](
        described(bank, pictures), described(parts, first), described(parts, rest if rest[0] else first),
        *arguments, **constants, BUFFERS=buffers,
    )  # fmt: skip
