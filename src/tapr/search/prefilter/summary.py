"""A picture's local vectors in a tenth of their bytes, and the largest score that they still allow.

Every local vector is v_j = A_j B + e_j: the R rows of B are the picture's own main directions, stored as int8, A_j are
R numbers, and of the rest e_j only lengths are kept: those of its parts in a few fixed, orthogonal subspaces. Then

    u . v_j  <=  A_j (B u) + sum_b |u_b| |e_jb|                                 (Cauchy-Schwarz in every subspace)

and l_tau(u; V), a mean of the u . v_j, is at most the largest of these. Remove needs it from below: the weights of the
mean grow with u . v_j, so it is at least the plain mean, and at least the largest minus tau log M (its entropy).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Rows
from tapr.store.codec import LONGEST
from tapr.types import Float32

RANK = 8  # directions per picture; docs/scaling.md compares others
_ULP = 2.0**-24
_STEP = np.float32(1 / 248)  # unit of stored lengths: no remainder is longer than LONGEST, 249 steps
_TURNS = 4
_SHARE = 1.5  # the longest A_j: the directions are orthonormal but for their codes
_CHUNK = 256  # pictures per batch
# Where the subspaces end, in parts of d: narrow ones where rests are long. Many, because the vectors of phrases lie
# mostly where the rests of pictures hardly reach.
_ENDS = (1 / 64, 1 / 16, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1)


@dataclass(frozen=True, eq=False)
class Subspaces:
    """An orthonormal basis of R^d, split into blocks. Fitted to typical remainders, but valid for any vector."""

    basis: Float32  # (d, d), columns

    @property
    def ends(self) -> tuple[int, ...]:
        """The end of each block."""
        return tuple(sorted({max(1, int(len(self.basis) * end)) for end in _ENDS}))

    @classmethod
    def fitted(cls, local_vectors: NDArray[Any], rank: int) -> Subspaces:
        """Fit to the remainders of some pictures (S, M, d): the directions in which they are longest come first."""
        dim = local_vectors.shape[-1]
        rests = _split(np.asarray(local_vectors, np.float32), rank)[3].reshape(-1, dim)
        _, vectors = np.linalg.eigh(rests.T.astype(np.float64) @ rests)
        return cls(np.ascontiguousarray(vectors[:, ::-1], np.float32))

    def lengths(self, vectors: NDArray[Any]) -> Float32:
        """(..., d) -> (..., blocks): upper bounds of the lengths of the vector's parts. Rounding errors are added."""
        dim = len(self.basis)
        turned = vectors @ self.basis.astype(vectors.dtype, copy=False)
        starts = (0, *self.ends[:-1])
        squares = np.stack(
            [(turned[..., start:end] ** 2).sum(-1) for start, end in zip(starts, self.ends, strict=True)], axis=-1
        )
        # the basis is orthonormal but for its rounding to float32; a float32 sum of d products is off by d ulp
        lost = (8 + (2 * (dim + 8) if vectors.dtype == np.float32 else 0)) * dim**0.5 * _ULP
        whole = np.sqrt((vectors**2).sum(-1))[..., None]
        return np.asarray(np.sqrt(squares) + whole * lost, np.float32) * np.float32(1 + 4 * _ULP)


@dataclass(frozen=True, eq=False)
class Summary:
    """Summaries of a bank's rows, in order. Arrays may be memory-mapped."""

    NAMES: ClassVar[tuple[str, ...]] = ("codes", "scales", "shares", "rests", "mean_rests")

    subspaces: Subspaces
    codes: NDArray[np.int8]  # (N, R, d): B is scales * codes
    scales: Float32  # (N, R)
    shares: NDArray[np.float16]  # (N, M, R): A
    rests: NDArray[np.uint8]  # (N, M, blocks): lengths of the e_j in steps, rounded up
    mean_rests: NDArray[np.uint8]  # (N, blocks): lengths of the mean of the e_j

    @classmethod
    def of(cls, local_vectors: NDArray[Any], subspaces: Subspaces, rank: int = RANK) -> Summary:
        """Summarise local vectors (N, M, d), in the precision that the kernels read."""
        codes, scales, shares, rests = _split(np.asarray(local_vectors, np.float32), rank)
        return cls(
            subspaces,
            codes,
            scales,
            shares,
            _rounded_up(subspaces.lengths(rests)),
            _rounded_up(subspaces.lengths(rests.mean(axis=1, dtype=np.float64))),
        )

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def bytes_per_picture(self) -> float:
        return sum(array[:1].nbytes for array in self.arrays.values())

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in self.NAMES}

    def highest(self, query: CompiledQuery, rows: Rows) -> Float32:
        """Upper bounds of what the local terms add to the score of each row (ascending, no repeats): (rows,) ->
        (rows,).

        This is by the definition, for the stored vectors; the kernel's rounding is added by bounds.error_bound.
        """
        limit = _Limit(query, self.subspaces)
        parts = [limit.of(self, chunk) for chunk in _chunks(rows)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)


class _Limit:
    """A query prepared for bounding."""

    def __init__(self, query: CompiledQuery, subspaces: Subspaces) -> None:
        wanted, unwanted = np.flatnonzero(query.weights > 0), np.flatnonzero(query.weights < 0)
        self._probes = np.asarray(query.probes[np.concatenate([wanted, unwanted])], np.float32)  # (n, d)
        self._weights = np.asarray(query.weights[np.concatenate([wanted, unwanted])], np.float32)
        self._wanted, self._tau = len(wanted), query.tau
        self._parts = np.ascontiguousarray(subspaces.lengths(self._probes.astype(np.float64)).T * _STEP)  # (blocks, n)
        # Float32 sums of d products, each times a share; of R + blocks; of M (the mean) and n numbers. All are below
        # |u| _SHARE sqrt(R) times so many ulp, and R is at most 64.
        lengths = np.linalg.norm(self._probes.astype(np.float64), axis=1) * (1 + 1e-6)
        self._lengths = float(np.abs(self._weights.astype(np.float64)) @ lengths)
        self._terms = query.dim + len(self._weights) + 64

    def of(self, summary: Summary, rows: Rows | slice) -> Float32:
        codes, shares = summary.codes[rows].astype(np.float32), summary.shares[rows].astype(np.float32)
        rests, mean_rests = summary.rests[rows].astype(np.float32), summary.mean_rests[rows].astype(np.float32)
        count, rank, dim = codes.shape
        seen = (codes.reshape(-1, dim) @ self._probes.T).reshape(count, rank, -1) * summary.scales[rows][..., None]
        n = self._wanted
        total = np.zeros(count, np.float32)
        if n:
            both = np.concatenate([shares, rests], axis=2)  # (b, M, R + blocks)
            error_bound = np.broadcast_to(self._parts[:, :n], (count, *self._parts[:, :n].shape))
            highest = (both @ np.concatenate([seen[..., :n], error_bound], axis=1)).max(axis=1)
            total += highest @ self._weights[:n]
        if n < len(self._weights):
            means = shares.mean(axis=1, keepdims=True) @ seen[..., n:]
            by_mean = means[:, 0] - mean_rests @ self._parts[:, n:]
            best = (shares @ seen[..., n:] - rests @ self._parts[:, n:]).max(axis=1)
            lowest = np.maximum(by_mean, best - np.float32(self._tau * np.log(shares.shape[1]) * (1 + 1e-6)))
            total += lowest @ self._weights[n:]  # weights of unwanted probes are negative
        rounding = (self._terms + shares.shape[1]) * (2 + _SHARE * rank**0.5) * _ULP * self._lengths * LONGEST
        return np.asarray(total + np.float32(2 * rounding), np.float32)


def _split(vectors: Float32, rank: int) -> tuple[NDArray[np.int8], Float32, NDArray[np.float16], Float32]:
    """(N, M, d) -> codes and scales of B, A, and the remainders relative to both as stored."""
    rank = min(rank, *vectors.shape[1:])
    # the main directions of M vectors, nearly, from their M x M products: far cheaper than a decomposition, and the
    # bound holds for any directions
    products = vectors @ vectors.transpose(0, 2, 1)
    turns = np.broadcast_to(_waves(vectors.shape[1], rank), (len(vectors), vectors.shape[1], rank))
    for _ in range(_TURNS):
        turns = np.linalg.qr(products @ turns)[0]  # (N, M, R)
    directions = turns.transpose(0, 2, 1) @ vectors  # (N, R, d), not of length 1
    # if there are too few, any others will do
    directions = np.linalg.qr(directions.transpose(0, 2, 1))[0].transpose(0, 2, 1)
    scales = np.asarray(np.abs(directions).max(axis=-1) / 127, np.float32)
    codes = np.rint(directions / scales[..., None]).astype(np.int8)
    stored = codes * scales[..., None]
    gram = stored @ stored.transpose(0, 2, 1)  # nearly 1
    shares = np.linalg.solve(gram, stored @ vectors.transpose(0, 2, 1)).transpose(0, 2, 1).astype(np.float16)
    rests = vectors - shares.astype(np.float32) @ stored
    # tiny vectors can get longer by rounding: then no direction is better
    worse = np.linalg.norm(rests, axis=-1) > np.linalg.norm(vectors, axis=-1)
    worse |= np.linalg.norm(shares.astype(np.float32), axis=-1) > _SHARE
    shares[worse], rests[worse] = 0, vectors[worse]
    return codes, scales, shares, rests


def _waves(count: int, rank: int) -> Float32:
    """(M, R): start vectors of the search, unrelated to the symmetries of the grid."""
    return np.asarray(np.cos(np.arange(1, count + 1)[:, None] * np.sqrt(np.arange(2, rank + 2))), np.float32)


def _rounded_up(lengths: Float32) -> NDArray[np.uint8]:
    steps = np.ceil(lengths / _STEP)
    assert steps.max(initial=0) <= 255
    return np.asarray(steps, np.uint8)


def _chunks(rows: Rows) -> Iterator[Rows | slice]:
    """Consecutive rows become a slice, which copies nothing."""
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        whole = int(chunk[-1]) - int(chunk[0]) == len(chunk) - 1
        yield slice(int(chunk[0]), int(chunk[-1]) + 1) if whole else chunk
