# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, no-untyped-call"
"""Bounds and candidates as Triton kernels: limit.py's formula, and candidates.py's products.

A program bounds a few pictures for one query. It multiplies their directions with some probes on the tensor cores,
int8 by int8, and adds what each place has of them in float32. Only a picture's bound is written.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _products(
    acc, probes, codes, p, place, real,
    START: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, BK: tl.constexpr, NIBBLE: tl.constexpr,
):  # fmt: skip
    """acc + probes[p, START:] . codes[place, :]. NIBBLE 0: the codes are bytes; 1, 2: low, high halves of bytes."""
    for k0 in range(0, WIDTH, BK):
        k = k0 + tl.arange(0, BK)
        u = tl.load(probes + p[:, None] * PADDED + START + k[None, :])
        c = tl.load(codes + place[None, :] + k[:, None], real[None, :] & (k < WIDTH)[:, None], 0)
        if NIBBLE == 1:
            c = (c << 4) >> 4
        if NIBBLE == 2:
            c = c >> 4
        acc = tl.dot(u, c, acc, out_dtype=tl.int32)
    return acc


@triton.jit
def _add_directions(
    places, means, codes, scales, shares, mean_shares, probes, step, p, rows, i0, images, second,
    FIRST: tl.constexpr, COUNT: tl.constexpr, RP: tl.constexpr, ALL: tl.constexpr, STRIDE: tl.constexpr,
    NIBBLES: tl.constexpr,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, G: tl.constexpr, BP: tl.constexpr,
    BK: tl.constexpr, BASE: tl.constexpr, GATHER: tl.constexpr,
):  # fmt: skip
    """Directions FIRST to FIRST + COUNT of the ALL that a record has, in RP columns per picture: places (BP, G, MP) and
    means (BP, G) grow.
    """
    HALF: tl.constexpr = (D + 1) // 2
    WIDTH: tl.constexpr = HALF if NIBBLES else D
    column = tl.arange(0, G * RP)
    number, r = i0 + column // RP, column % RP
    real = (number < images) & (r < COUNT)
    row = tl.load(rows + number, real, 0) if GATHER else number.to(tl.int64)
    place = row * STRIDE + r * WIDTH
    acc = tl.zeros([BP, G * RP], tl.int32)
    if NIBBLES:
        acc = _products(acc, probes, codes, p, place, real, 0, WIDTH, PADDED, BK, 1)
        acc = _products(acc, probes, codes, p, place, real, HALF, WIDTH, PADDED, BK, 2)
    else:
        acc = _products(acc, probes, codes, p, place, real, 0, WIDTH, PADDED, BK, 0)
    if BASE:  # the second digits
        acc *= BASE
        if NIBBLES:
            acc = _products(acc, second, codes, p, place, real, 0, WIDTH, PADDED, BK, 1)
            acc = _products(acc, second, codes, p, place, real, HALF, WIDTH, PADDED, BK, 2)
        else:
            acc = _products(acc, second, codes, p, place, real, 0, WIDTH, PADDED, BK, 0)
    scale = tl.load(scales + row * ALL + FIRST + r, real, 0.0)
    dots = (acc.to(tl.float32) * step[:, None] * scale[None, :]).reshape(BP, G, RP)
    image = i0 + tl.arange(0, G)
    inside = image < images
    own = tl.load(rows + image, inside, 0) if GATHER else image.to(tl.int64)
    j = tl.arange(0, MP)
    seen = inside[:, None] & (j < M)[None, :]
    for d in tl.range(0, COUNT, num_stages=1):
        dot = tl.sum(tl.where(tl.arange(0, RP)[None, None, :] == d, dots, 0.0), 2)
        share = tl.load(shares + ((own * ALL + FIRST + d) * M)[:, None] + j[None, :], seen, 0).to(tl.float32)
        places += share[None, :, :] * dot[:, :, None]
        means += tl.load(mean_shares + own * ALL + FIRST + d, inside, 0.0)[None, :] * dot
    return places, means


@triton.jit(do_not_specialize=["images", "count"])
def limits_kernel(
    pooled, packed1, scales1, shares1, mean_shares1, packed2, scales2, shares2, mean_shares2,
    rests, mean_rests, rest_steps, targets, lost, length, global_vectors, target,
    probes, steps, weights, parts, offsets, rows, found, images, count,
    PACKED1: tl.constexpr, RP0: tl.constexpr, RP1: tl.constexpr, PACKED2: tl.constexpr, RP2: tl.constexpr,
    CLOSER: tl.constexpr, BLOCKS: tl.constexpr,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, G: tl.constexpr, BP: tl.constexpr,
    BK: tl.constexpr, BASE: tl.constexpr, GATHER: tl.constexpr,
):  # fmt: skip
    """found[i]: the most that picture i (or rows[i]) can score, but for rounding. `count`: probes, in whole tiles.

    The target's term is targets[i] and what the bytes lose, at most; if CLOSER, that of the global vectors, and the
    second record is used too. `rests` are those of the last record that is used. With BASE, the probes' second digits
    follow the first.
    """
    i0 = tl.program_id(0) * G
    image = i0 + tl.arange(0, G)
    inside = image < images
    own = tl.load(rows + image, inside, 0) if GATHER else image.to(tl.int64)
    j = tl.arange(0, MP)
    seen = inside[:, None] & (j < M)[None, :]
    half: tl.constexpr = (D + 1) // 2
    all1: tl.constexpr = 1 + PACKED1
    rest_step = tl.load(rest_steps + own, inside, 0.0)
    total = tl.zeros([G], tl.float64)
    second = probes + count.to(tl.int64) * PADDED
    for p0 in range(0, count, BP):
        p = p0 + tl.arange(0, BP)
        step = tl.load(steps + p)
        places = tl.zeros([BP, G, MP], tl.float32)
        means = tl.zeros([BP, G], tl.float32)
        places, means = _add_directions(  # the mean: the second half of the pooled bytes
            places, means, pooled + D, scales1, shares1, mean_shares1, probes, step, p, rows, i0, images, second,
            0, 1, RP0, all1, 2 * D, 0, D, PADDED, M, MP, G, BP, BK, BASE, GATHER,
        )  # fmt: skip
        if PACKED1:
            places, means = _add_directions(
                places, means, packed1, scales1, shares1, mean_shares1, probes, step, p, rows, i0, images, second,
                1, PACKED1, RP1, all1, PACKED1 * half, 1, D, PADDED, M, MP, G, BP, BK, BASE, GATHER,
            )  # fmt: skip
        if PACKED2:
            places, means = _add_directions(
                places, means, packed2, scales2, shares2, mean_shares2, probes, step, p, rows, i0, images, second,
                0, PACKED2, RP2, PACKED2, PACKED2 * half, 1, D, PADDED, M, MP, G, BP, BK, BASE, GATHER,
            )  # fmt: skip
        for b in tl.range(0, BLOCKS, num_stages=1):
            part = tl.load(parts + b * count + p)
            rest = tl.load(rests + ((own * BLOCKS + b) * M)[:, None] + j[None, :], seen, 0).to(tl.float32)
            places += (rest * rest_step[:, None])[None, :, :] * part[:, None, None]
            mean_rest = tl.load(mean_rests + own * BLOCKS + b, inside, 0).to(tl.float32) * rest_step
            means += mean_rest[None, :] * part[:, None]
        highest = tl.max(tl.where((j < M)[None, None, :], places, float("-inf")), 2)
        best = tl.maximum(highest - tl.load(offsets + p)[:, None], means)
        total += tl.sum(best.to(tl.float64) * tl.load(weights + p).to(tl.float64)[:, None], 0)
    if CLOSER:
        aim = tl.zeros([G], tl.float32)
        for k0 in range(0, D, BK):
            k = k0 + tl.arange(0, BK)
            v = tl.load(global_vectors + (own * D)[:, None] + k[None, :], inside[:, None] & (k < D)[None, :], 0.0)
            aim += tl.sum(v.to(tl.float32) * tl.load(target + k, k < D, 0.0)[None, :], 1)
        total += aim.to(tl.float64)
    else:
        total += tl.load(targets + image, inside, 0.0).to(tl.float64)
        total += tl.load(lost + own, inside, 0.0).to(tl.float64) * tl.load(length).to(tl.float64)
    tl.store(found + image, total.to(tl.float32), inside)


@triton.jit(do_not_specialize=["images"])
def pooled_kernel(pooled, wanted, rows, found, images, D: tl.constexpr, BI: tl.constexpr, BK: tl.constexpr,
                  GATHER: tl.constexpr):  # fmt: skip
    """found[h, i]: the product of half h of picture i's pooled vector with wanted[h], in whole numbers."""
    image, h = tl.program_id(0) * BI + tl.arange(0, BI), tl.program_id(1)
    inside = image < images
    own = tl.load(rows + image, inside, 0) if GATHER else image.to(tl.int64)
    acc = tl.zeros([BI, BK], tl.int32)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        v = tl.load(pooled + (own * 2 * D + h * D)[:, None] + k[None, :], inside[:, None] & (k < D)[None, :], 0)
        acc += v.to(tl.int32) * tl.load(wanted + h * D + k, k < D, 0).to(tl.int32)[None, :]
    tl.store(found + h.to(tl.int64) * images + image, tl.sum(acc, 1).to(tl.float32), inside)
