"""Summaries: a picture's local vectors in a fraction of their bytes, so that few pictures have to be read whole.

Every local vector, rotated as codes are (codec.py), is v_j = sum_r scale_r share_jr code_r + e_j. The R code vectors
are the picture's own main directions, the shares are whole numbers, and of the rest e_j only lengths are kept: those of
its parts in a few fixed, orthogonal subspaces. search/prefilter/limit.py makes the largest score of it that it allows.

A picture has three rows. `pooled` is its global vector and the mean of its local ones, as bytes: candidates are found
by them alone. The mean is also the first direction. The outline has a few more, as nibbles, and the rests beside them.
The summary has further directions, and the rests beside all. Most pictures are ruled out by their outline.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.store.codec import rotate
from tapr.types import Float32, Float64

OUTLINED, SUMMARISED = 3, 12  # directions of the two records beside the mean; docs/first_stage.md compares others
_ENDS = (1 / 32, 1 / 6, 1 / 2, 1)  # where the subspaces end, in parts of d: narrow ones where rests are long
BLOCKS = len(_ENDS)
HELD = 1 + 2.0**-4  # no sum of shares times directions is longer than this
SPREAD = 4.0  # nor are the terms of a record together longer than this, each by its own length
_TURNS = 3
_BATCH = 16  # pictures at a time: what is worked on stays in the processor's caches
_FEW, _COLUMNS = 256, 32  # rows of a product that is made in parts, and columns of a part
_ALONE = 1 << 17  # products of numbers that OpenBLAS does by one thread
_NIBBLE = 7
_CLIPPED = 0.75  # the largest number of a direction in nibbles, as a part of the largest there is: less is lost so
_ULP = 2.0**-24
_POOLED_LARGEST = 6.0  # of a unit vector's rotated numbers, in units of 1 / sqrt(d); what is larger is cut off
SAMPLE = 512  # pictures that a basis is fitted to
WORTH = 10_000  # pictures from which they are made and used unasked; docs/first_stage.md has the measurement


def directions_of(count: int, dim: int) -> tuple[int, int]:
    """How many directions beside the mean the records of a picture with `count` vectors of `dim` numbers have."""
    most = min(count, dim)
    return min(OUTLINED, most), min(SUMMARISED, most - min(OUTLINED, most))


def outline_type(count: int, dim: int) -> np.dtype[Any]:
    return _record_type(directions_of(count, dim)[0], count, dim, mean=True)


def summary_type(count: int, dim: int) -> np.dtype[Any]:
    return _record_type(directions_of(count, dim)[1], count, dim, mean=False)


def _record_type(directions: int, count: int, dim: int, *, mean: bool) -> np.dtype[Any]:
    """The layout that search/kernels/native/bound.inc reads. With `mean`, the first share is that of the mean."""
    shares = directions + mean
    return np.dtype(
        [
            ("scales", "<f4", (shares,)),
            ("mean_shares", "<f4", (shares,)),
            ("step", "<f4"),
            *([("lost", "<f4")] if mean else []),  # the length of what the global vector's bytes lose
            ("mean_rests", "u1", (BLOCKS,)),
            ("shares", "i1", (count, shares)),
            ("rests", "u1", (count, BLOCKS)),
            ("codes", "u1", (directions, (dim + 1) // 2)),
        ]
    )


@dataclass(frozen=True, eq=False)
class Subspaces:
    """An orthonormal basis of the rotated vectors, split into blocks. Fitted to typical rests, but valid for any."""

    basis: Float32  # (d, d), columns

    @cached_property
    def _leading(self) -> Float32:
        return np.ascontiguousarray(self.basis[:, : self.ends[-2]])

    @cached_property
    def _leading_in_float64(self) -> Float64:
        return self._leading.astype(np.float64)

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(max(1, int(len(self.basis) * end)) for end in _ENDS)

    @classmethod
    def fitted(cls, local_vectors: NDArray[Any]) -> Subspaces:
        """Fit to the outlines' rests of some pictures (S, M, d); directions in which they are longest come first."""
        vectors = rotate(local_vectors)
        count, dim = vectors.shape[1:]
        vectors -= _along(vectors, vectors.mean(axis=1))
        main = _main_directions(vectors, directions_of(count, dim)[0])
        rests = (vectors - (vectors @ main.transpose(0, 2, 1)) @ main).reshape(-1, dim)
        _, basis = np.linalg.eigh(rests.T @ rests)
        return cls(np.ascontiguousarray(basis[:, ::-1], np.float32))

    def to_text(self) -> str:
        return base64.b64encode(self.basis.astype("<f4").tobytes()).decode()

    @classmethod
    def from_text(cls, text: str) -> Subspaces:
        numbers = np.frombuffer(base64.b64decode(text), "<f4")
        dim = math.isqrt(len(numbers))
        return cls(np.asarray(numbers.reshape(dim, dim), np.float32))

    def lengths(self, vectors: NDArray[Any]) -> Float64:
        """(..., d) -> (..., blocks): upper bounds of the lengths of the vector's parts. Rounding errors are added."""
        dim = len(self.basis)
        flat = vectors.reshape(-1, dim)
        # the last block is what the others leave
        turned = _product(flat, self._leading if flat.dtype == np.float32 else self._leading_in_float64)
        starts = (0, *self.ends[:-2])
        squares = [
            np.einsum("nd,nd->n", part, part, dtype=np.float64)
            for part in (turned[:, start:end] for start, end in zip(starts, self.ends[:-1], strict=True))
        ]
        whole = np.einsum("nd,nd->n", flat, flat, dtype=np.float64)
        # the basis is orthonormal but for its rounding to float32; a float32 sum of d products is off by d ulp
        lost = (8 + (2 * (dim + 8) if flat.dtype == np.float32 else 0)) * dim**0.5 * _ULP
        slack = np.sqrt(whole) * lost
        # where the others' squares are off, so is the difference: 2 |part| slack each
        left = np.maximum(whole - sum(squares), 0) + (2 * len(squares) + 1) * np.sqrt(whole) * slack
        parts = np.stack([*(np.sqrt(square) + slack for square in squares), np.sqrt(left) + slack], axis=-1)
        return parts.reshape(*vectors.shape[:-1], len(self.ends))


@dataclass(frozen=True, eq=False)
class Rows:
    """The three rows of some pictures."""

    pooled: NDArray[np.int8]  # (N, 2 d)
    outlines: NDArray[Any]  # (N,)
    summaries: NDArray[Any]  # (N,)


@dataclass(frozen=True, eq=False)
class Summariser:
    """Makes the records of pictures."""

    subspaces: Subspaces

    def of(self, global_vectors: NDArray[Any], local_vectors: NDArray[Any]) -> Rows:
        """Of global (N, d) and local vectors (N, M, d), in the precision that the kernels read."""
        parts = [slice(start, start + _BATCH) for start in range(0, max(1, len(local_vectors)), _BATCH)]
        lots = [self._of(global_vectors[part], local_vectors[part]) for part in parts]
        return Rows(
            np.concatenate([lot.pooled for lot in lots]),
            np.concatenate([lot.outlines for lot in lots]),
            np.concatenate([lot.summaries for lot in lots]),
        )

    def _of(self, global_vectors: NDArray[Any], local_vectors: NDArray[Any]) -> Rows:
        whole, vectors = rotate(global_vectors), rotate(local_vectors)  # (N, d), (N, M, d)
        count, dim = vectors.shape[1:]
        first, second = directions_of(count, dim)
        wholes, means = _pooled(whole), _pooled(vectors.mean(axis=1))
        main = _main_directions(vectors - _along(vectors, means), first + second)
        outlines = np.zeros(len(vectors), outline_type(count, dim))
        summaries = np.zeros(len(vectors), summary_type(count, dim))
        lost = _length(whole - wholes * pooled_step(dim)) * (1 + 1e-9)
        outlines["lost"] = np.nextafter(lost.astype(np.float32), np.float32(np.inf))
        scales, codes = _codes(main)
        outlines["codes"], summaries["codes"] = _packed(codes[:, :first]), _packed(codes[:, first:])
        with_mean = np.concatenate([means[:, None], codes[:, :first]], axis=1)
        its_scales = np.concatenate([np.full((len(means), 1), pooled_step(dim)), scales[:, :first]], axis=1)
        rests = self._fill(outlines, vectors, vectors, its_scales, with_mean)
        self._fill(summaries, vectors, rests, scales[:, first:], codes[:, first:])
        return Rows(np.concatenate([wholes, means], axis=1).astype(np.int8), outlines, summaries)

    def _fill(self, records: NDArray[Any], vectors: Float64, left: Float64, scales: Float64, codes: Float64) -> Float64:
        """Shares and rests of these directions, (N, R) and (N, R, d), for what is left. -> what they leave."""
        shares, share_scales = _shares(left, codes * scales[..., None])
        records["scales"] = scales * share_scales
        stored = records["scales"].astype(np.float64)[..., None] * codes  # as the kernel multiplies it
        rests = left - shares @ stored
        # A share that makes a vector longer is worse than none. Others are too long for what is allowed for rounding.
        worse = _length(rests) > _length(left)
        worse |= _length(vectors - rests) > HELD
        worse |= (np.abs(shares) @ np.linalg.norm(stored, axis=-1)[..., None])[..., 0] > SPREAD
        shares[worse], rests[worse] = 0, left[worse]
        records["shares"] = shares
        records["mean_shares"] = shares.mean(axis=1)
        means = left.mean(axis=1) - (records["mean_shares"].astype(np.float64)[:, None] @ stored)[:, 0]
        lengths, mean_lengths = self.subspaces.lengths(rests.astype(np.float32)), self.subspaces.lengths(means)
        longest = np.maximum(lengths.max(axis=(1, 2), initial=0), mean_lengths.max(axis=1, initial=0))
        records["step"] = np.nextafter((longest / 255 + 1e-30).astype(np.float32), np.float32(1))
        steps = records["step"].astype(np.float64)
        records["rests"] = np.ceil(lengths / steps[:, None, None])
        records["mean_rests"] = np.ceil(mean_lengths / steps[:, None])
        return np.asarray(rests)


def pooled_step(dim: int) -> float:
    """The unit of the pooled bytes, the same for all pictures."""
    return float(_POOLED_LARGEST / 127 / dim**0.5)


def _pooled(rotated: Float64) -> Float64:
    """(N, d) -> whole numbers (N, d)"""
    return np.asarray(np.clip(np.rint(rotated / pooled_step(rotated.shape[-1])), -127, 127))


def _along(vectors: Float64, directions: Float64) -> Float64:
    """The parts of vectors (N, M, d) along a direction of each picture (N, d)."""
    squares = np.einsum("nd,nd->n", directions, directions)[:, None]
    shares = (vectors @ directions[..., None])[..., 0] / np.where(squares > 0, squares, 1)
    return np.asarray(shares[..., None] * directions[:, None])


def nibbles_as_codes(packed: NDArray[np.uint8], dim: int) -> NDArray[np.int8]:
    """(..., half of d) -> (..., d)"""
    low = (packed << 4).view(np.int8) >> 4
    return np.concatenate([low, packed.view(np.int8) >> 4], axis=-1)[..., :dim]


def _product(vectors: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """(n, d) x (d, k). In small parts where n is small: a query's probes must not wait for threads of the library."""
    if len(vectors) > _FEW:
        return np.asarray(vectors @ matrix)
    out = np.empty((len(vectors), matrix.shape[1]), vectors.dtype)
    rows = max(1, _ALONE // (matrix.shape[0] * _COLUMNS))
    for row in range(0, len(vectors), rows):
        for column in range(0, matrix.shape[1], _COLUMNS):
            part = slice(row, row + rows), slice(column, column + _COLUMNS)
            out[part] = vectors[part[0]] @ matrix[:, part[1]]
    return out


def _length(vectors: Float64) -> Float64:
    return np.asarray(np.sqrt(np.einsum("...d,...d->...", vectors, vectors)))


def _packed(codes: Float64) -> NDArray[np.uint8]:
    numbers = codes.astype(np.int8).view(np.uint8)
    half = (codes.shape[-1] + 1) // 2
    high = np.zeros((*codes.shape[:-1], half), np.uint8)
    high[..., : codes.shape[-1] - half] = numbers[..., half:]
    return np.asarray((numbers[..., :half] & 15) | (high << 4))


def _codes(directions: Float64) -> tuple[Float64, Float64]:
    """Directions (N, R, d) -> scales (N, R) and codes (N, R, d), whole numbers that fit nibbles."""
    top = np.abs(directions).max(axis=-1, initial=0) * _CLIPPED
    scales = np.where(top > 0, top, 1) / _NIBBLE
    return scales, np.clip(np.rint(directions / scales[..., None]), -_NIBBLE, _NIBBLE)


def _shares(vectors: Float64, stored: Float64) -> tuple[Float64, Float64]:
    """The whole numbers (N, M, R) that come closest to the vectors, and their scales (N, R)."""
    products = stored @ stored.transpose(0, 2, 1)
    products += 1e-9 * np.eye(products.shape[-1])  # where a direction is missing, it is all zeros
    wanted = np.linalg.solve(products, stored @ vectors.transpose(0, 2, 1)).transpose(0, 2, 1)
    top = np.abs(wanted).max(axis=1, initial=0)
    scales = np.where(top > 0, top, 1) / 127
    return np.rint(wanted / scales[:, None]), scales


def _main_directions(vectors: Float64, rank: int) -> Float64:
    """(N, M, d) -> (N, R, d): of length 1, nearly those of the longest parts, longest first; the bound holds for any.

    From the M x M products of the vectors, which is far cheaper than a decomposition.
    """
    count = vectors.shape[1]
    narrow = vectors.astype(np.float32)
    products = narrow @ narrow.transpose(0, 2, 1)
    waves = np.cos(np.arange(1, count + 1)[:, None] * np.sqrt(np.arange(2, rank + 2)))  # unlike the grid's symmetries
    turns = np.broadcast_to(waves.astype(np.float32), (len(vectors), count, rank))
    for _ in range(_TURNS):
        turns = np.linalg.qr(products @ turns)[0]  # (N, M, R)
    squares, order = np.linalg.eigh(turns.transpose(0, 2, 1) @ (products @ turns))
    found = (turns @ order[..., ::-1]).transpose(0, 2, 1) @ narrow  # (N, R, d)
    lengths = np.sqrt(np.maximum(squares[:, ::-1], 0)).astype(np.float64)
    usable = lengths > 1e-5  # shorter ones are rounding
    return np.asarray(found * np.where(usable, 1 / np.where(usable, lengths, 1), 0)[..., None])
