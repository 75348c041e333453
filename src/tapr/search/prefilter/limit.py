"""The largest score that a picture's summary allows: the definition, in NumPy.

A summary (store/summary.py) writes a picture's local vectors as v_j = h_j + e_j: h_j is known, and of e_j the lengths
of its parts in a few orthogonal subspaces. For a probe u, with u_b and e_jb the parts in subspace b,

    u . v_j  <=  u . h_j + sum_b |u_b| |e_jb|                                  (Cauchy-Schwarz in every subspace)

and l_tau(u; V), a mean of the u . v_j, is at most the largest of these. Remove needs it from below: the weights of the
mean grow with u . v_j, so it is at least the plain mean, and at least the largest minus tau log M (its entropy). There,
rests count against the probe, and both are one formula with the sign of the probe's weight:

    limit  =  max( max_j (u . h_j +- rest_j) - offset,  u . mean(h) +- rest of the mean )     offset = 0 or tau log M

For a positive weight the second is never above the first. By its outline alone, the target's term is that of the
global vector's bytes and the length of what they lose; looked at closer, it is exact, and of every probe's two limits
the lower one counts. All rounding is added: `Limit.slack`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Rows
from tapr.search.kernels.bounds import ULP, lengths_of, sum_loss
from tapr.search.kernels.row_blocks import pieces_of
from tapr.store.block import Block
from tapr.store.codec import LONGEST, rotate
from tapr.store.summary import HELD, SPREAD, Subspaces, nibbles_as_codes
from tapr.types import Float32, Float64
from tapr.utils.weak_cache import weakly_cached

_CHUNK = 256  # pictures per batch of the NumPy kernel


@dataclass(frozen=True, eq=False)
class Limit:
    """A query prepared for bounding; without its probes of weight 0."""

    query: CompiledQuery
    used: NDArray[np.int64]  # (n,) indices of its probes
    parts: Float32  # (blocks, n): upper bounds of |u_b|, with the sign of the probe's weight
    offsets: Float32  # (n,)

    @classmethod
    def of(cls, query: CompiledQuery, subspaces: Subspaces, count: int) -> Limit:
        """`count` is M, the number of local vectors."""
        used = np.flatnonzero(query.weights)
        signs = np.sign(query.weights[used].astype(np.float64))
        lengths = subspaces.lengths(rotate(query.probes[used])) * (1 + 4 * ULP)
        lowered = np.where(signs < 0, query.tau * np.log(count) * (1 + 1e-6), 0.0)
        return cls(
            query, used, np.ascontiguousarray((lengths * signs[:, None]).T, np.float32), lowered.astype(np.float32)
        )

    @property
    def weights(self) -> Float64:
        """(n,)"""
        return self.query.weights[self.used].astype(np.float64)

    @property
    def target_length(self) -> np.float32:
        """At least the length of the target, times its weight."""
        length = float(np.linalg.norm(self.query.target.astype(np.float64))) * abs(self.query.target_weight)
        return np.float32(np.nextafter(np.float32(length * (1 + 1e-6)), np.float32(np.inf)))

    def slack(self, count: int, lost: Float64 | None = None) -> float:
        """How far the true limit can be above the one that a kernel computes.

        `lost`, per probe of the query: the length of what the kernel's rounding changes in it, if it does not add that.
        """
        weights = np.abs(self.query.weights.astype(np.float64))
        total = float(weights @ lengths_of(self.query))
        # products of directions and their sums; rests; the sum over probes
        sums = (sum_loss(self.query.dim) + 64 * ULP) * 2 * SPREAD + 64 * ULP * LONGEST
        rounded = 0.0 if lost is None else float(weights @ lost) * HELD
        return rounded + total * (sums + count * ULP) + 32 * ULP * len(weights)


@weakly_cached
def limit_of(query: CompiledQuery, subspaces: Subspaces, count: int) -> Limit:
    return Limit.of(query, subspaces, count)


def limits_by_numpy(
    limits: Sequence[Limit], bank: Bank, rows: Rows | None, targets: Float32, floors: Float64 | None
) -> Float32:
    """(Q, R): the definition of the bound, in float64; `targets` are those of candidates.resemblance.

    What reaches a query's floor (Q,) by its outline is looked at closer for all of them; None: nothing is.
    """
    found: list[Float64] = [np.zeros((len(limits), 0))]
    done = 0
    for block in pieces_of(bank, rows, _CHUNK):
        here = slice(done, done := done + len(block))
        best = [limits_of(limit, block, closer=False) for limit in limits]
        bounds = np.stack(
            [
                _target_by_bytes(limit, block, by_bytes[here]) + one @ limit.weights
                for limit, one, by_bytes in zip(limits, best, targets, strict=True)
            ]
        )
        if floors is not None and (reach := np.flatnonzero((bounds >= floors[:, None]).any(axis=0))).size:
            some = block.take(reach)
            for number, limit in enumerate(limits):
                closer, outlined = limits_of(limit, some, closer=True), best[number][reach]
                signs = np.sign(limit.weights)
                terms = signs * np.minimum(signs * closer, signs * outlined)
                target = np.minimum(
                    _target_of(limit, some), _target_by_bytes(limit, some, targets[number, here][reach])
                )
                bounds[number, reach] = target + terms @ limit.weights
        found.append(bounds)
    return np.concatenate(found, axis=1).astype(np.float32)


def limits_by_records(
    limits: Sequence[Limit], bank: Bank, rows: Rows | None, targets: Float32, closer: bool
) -> Float32:
    """(Q, R): the bound by the outlines alone or by both records alone, for kernels that do not compare them."""
    found: list[Float64] = [np.zeros((len(limits), 0))]
    done = 0
    for block in pieces_of(bank, rows, _CHUNK):
        here = slice(done, done := done + len(block))
        known = [
            _target_of(limit, block) if closer else _target_by_bytes(limit, block, by_bytes[here])
            for limit, by_bytes in zip(limits, targets, strict=True)
        ]
        found.append(
            np.stack(
                [
                    term + limits_of(limit, block, closer=closer) @ limit.weights
                    for limit, term in zip(limits, known, strict=True)
                ]
            )
        )
    return np.concatenate(found, axis=1).astype(np.float32)


def _target_of(limit: Limit, block: Block) -> Float64:
    exact = block.global_vectors.astype(np.float64) @ limit.query.target.astype(np.float64)
    return np.asarray(exact * limit.query.target_weight)


def _target_by_bytes(limit: Limit, block: Block, by_bytes: Float32) -> Float64:
    assert block.outlines is not None
    return np.asarray(by_bytes + block.outlines["lost"].astype(np.float64) * limit.target_length)


def limits_of(limit: Limit, block: Block, *, closer: bool) -> Float64:
    """(B, n): of every probe, by the outlines or by both records."""
    query = limit.query
    assert block.outlines is not None
    assert block.pooled is not None
    outlines, means = block.outlines, block.pooled[:, None, query.dim :]
    records = [(outlines, np.concatenate([means, nibbles_as_codes(outlines["codes"], query.dim)], axis=1))]
    if closer and block.summaries is not None:
        records.append((block.summaries, nibbles_as_codes(block.summaries["codes"], query.dim)))
    probes = rotate(query.probes[limit.used])
    places = np.zeros((len(block), outlines["shares"].shape[1], len(probes)))
    means_of_places = np.zeros((len(block), len(probes)))
    for record, codes in records:
        seen = (codes @ probes.T) * record["scales"].astype(np.float64)[..., None]  # (B, R, n)
        places += record["shares"].astype(np.float64) @ seen
        means_of_places += np.einsum("br,brn->bn", record["mean_shares"].astype(np.float64), seen)
    last = records[-1][0]
    step, parts = last["step"].astype(np.float64), limit.parts.astype(np.float64)
    places += step[:, None, None] * (last["rests"] @ parts)
    means_of_places += step[:, None] * (last["mean_rests"] @ parts)
    return np.asarray(np.maximum(places.max(axis=1) - limit.offsets, means_of_places))
