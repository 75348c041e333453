"""Bounds and candidates by the compiled kernel: search/kernels/native/bound.inc."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tapr.search.kernels import _kernel
from tapr.search.kernels.base import Bank, Rows
from tapr.search.kernels.cpu import CpuKernel, ProbesOfMany, plain
from tapr.search.kernels.row_blocks import parts_of
from tapr.search.prefilter.limit import Limit
from tapr.store.summary import BLOCKS, HELD, directions_of
from tapr.types import Float32, Float64

_LANES = 16  # probes are worked on side by side in so many


def limits_by(
    kernel: CpuKernel,
    limits: Sequence[Limit],
    bank: Bank,
    rows: Rows | None,
    targets: Float32,
    floors: Float64 | None,
) -> Float32:
    """(Q, R): as limit.limits_by_numpy, with what rounding takes from the probes added, and a little more."""
    found = np.array(targets, np.float32, order="C")
    if not found.size:
        return found
    probes = ProbesOfMany.of([limit.query for limit in limits], kernel.bound_level(closer=True))
    first, second = directions_of(bank.card.locals_count, bank.card.dim)
    closer = floors is not None
    _kernel.bounds(
        kernel.isa,
        kernel.threads,
        [
            (
                plain(block.global_vectors, np.float16) if closer else None,
                plain(block.pooled, np.int8),
                _bytes(block.outlines),
                _bytes(block.summaries) if closer and second else None,
                None if inside is None else plain(inside, np.int64),
            )
            for block, inside in parts_of(bank, rows)
        ],
        bank.card.locals_count,
        BLOCKS,
        first,
        second,
        *probes.targets,
        np.array([limit.target_length for limit in limits], np.float32),
        probes.fine if kernel.bound_level(closer=True).coarse else 0,
        probes.vectors,
        probes.weights,
        probes.owner,
        _lanes(kernel, limits, probes),
        None if floors is None else plain(floors, np.float64),
        found,
    )
    return found


def _lanes(kernel: CpuKernel, limits: Sequence[Limit], probes: ProbesOfMany) -> Float32:
    """What the kernel needs of every probe, in whole vectors of lanes: see Lanes in native/job.h."""
    lanes = np.zeros((5 + BLOCKS, -(-len(probes.owner) // _LANES) * _LANES), np.float32)
    lanes[0, : len(probes.owner)] = probes.weights
    signs = lanes[1] = np.where(lanes[0] < 0, -1, 1)
    for number, limit in enumerate(limits):
        own = np.flatnonzero(probes.owner == number)
        chosen = probes.chosen[own]
        places = np.searchsorted(limit.used, chosen)
        lanes[2, own], lanes[5:, own] = limit.offsets[places], limit.parts[:, places]
        for line, closer in ((3, False), (4, True)):
            lost = kernel.rounding_loss(limit.query, kernel.bound_level(closer=closer))[chosen]
            lanes[line, own] = signs[own] * lost * HELD * (1 + 1e-6)
    return lanes


def pooled_by(kernel: CpuKernel, wanted: NDArray[np.int16], bank: Bank, rows: Rows | None) -> Float32:
    """(Q, 2, d) -> (Q, 2, R): products with both halves of the pooled vectors."""
    found = np.empty((len(wanted), 2, bank.row_count if rows is None else len(rows)), np.float32)
    if found.size:
        parts = [
            (plain(block.pooled, np.int8), None if inside is None else plain(inside, np.int64))
            for block, inside in parts_of(bank, rows)
        ]
        _kernel.pooled(kernel.isa, kernel.threads, parts, wanted.shape[2], plain(wanted, np.int16), found)
    return found


def _bytes(records: NDArray[np.void] | None) -> NDArray[np.uint8]:
    assert records is not None
    return np.ascontiguousarray(records).view(np.uint8)
