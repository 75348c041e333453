"""Summaries: a picture's local vectors in a fraction of their bytes, so that few pictures have to be read whole.

Every local vector, rotated as codes are (codec.py), is v_j = sum_r scale_r share_jr code_r + e_j. The R code vectors
are the picture's own main directions, the shares are whole numbers, and of the rest e_j only lengths are kept: those of
its parts in a few fixed, orthogonal subspaces. search/prefilter/limit.py makes the largest score of it that it allows.

A picture has two records. Its outline has the first directions, as bytes, and the rests beside them. Its summary has
further directions, as nibbles, and the rests beside all of them. Most pictures are ruled out by their outline alone. A
third row, pooled, is one vector per picture for finding candidates; no proof rests on it.
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

OUTLINED, SUMMARISED = 4, 12  # directions of the two records; docs/scaling.md compares others
_ENDS = (1 / 32, 1 / 6, 1 / 2, 1)  # where the subspaces end, in parts of d: narrow ones where rests are long
BLOCKS = len(_ENDS)
HELD = 1 + 2.0**-4  # no sum of shares times directions is longer than this
SPREAD = 4.0  # nor are the terms of a record together longer than this, each by its own length
_TURNS = 4
_BATCH = 64  # pictures at a time
_FEW, _COLUMNS = 256, 32  # rows of a product that is made in parts, and columns of a part
_ALONE = 1 << 17  # products of numbers that OpenBLAS does by one thread
_NIBBLE = 7
_CLIPPED = 0.75  # the largest number of a direction in nibbles, as a part of the largest there is: less is lost so
_ULP = 2.0**-24
_POOLED_LARGEST = 6.0  # of a unit vector's rotated numbers, in units of 1 / sqrt(d); what is larger is cut off
SAMPLE = 512  # pictures that a basis is fitted to


def directions_of(count: int, dim: int) -> tuple[int, int]:
    """How many directions the two records of a picture with `count` local vectors of `dim` numbers have."""
    most = min(count, dim)
    return min(OUTLINED, most), min(SUMMARISED, most - min(OUTLINED, most))


def record_type(directions: int, count: int, dim: int, *, nibbles: bool) -> np.dtype[Any]:
    """The layout that search/kernels/native/bound.inc reads."""
    return np.dtype(
        [
            ("scales", "<f4", (directions,)),
            ("mean_shares", "<f4", (directions,)),
            ("step", "<f4"),
            ("mean_rests", "u1", (BLOCKS,)),
            ("shares", "i1", (count, directions)),
            ("rests", "u1", (count, BLOCKS)),
            ("codes", "u1" if nibbles else "i1", (directions, (dim + 1) // 2 if nibbles else dim)),
        ]
    )


def outline_type(count: int, dim: int) -> np.dtype[Any]:
    return record_type(directions_of(count, dim)[0], count, dim, nibbles=False)


def summary_type(count: int, dim: int) -> np.dtype[Any]:
    return record_type(directions_of(count, dim)[1], count, dim, nibbles=True)


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
        """Fit to the rests of some pictures (S, M, d): the directions in which they are longest come first."""
        vectors = rotate(local_vectors)
        count, dim = vectors.shape[1:]
        main = _main_directions(vectors.astype(np.float32), sum(directions_of(count, dim)))
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
class Summariser:
    """Makes the records of pictures."""

    subspaces: Subspaces

    def of(self, local_vectors: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Outlines (N,) and summaries (N,) of local vectors (N, M, d), in the precision that the kernels read."""
        starts = range(0, max(1, len(local_vectors)), _BATCH)
        lots = [self._of(local_vectors[start : start + _BATCH]) for start in starts]
        outlines, summaries = zip(*lots, strict=True)
        return np.concatenate(outlines), np.concatenate(summaries)

    def _of(self, local_vectors: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        vectors = rotate(local_vectors)  # (N, M, d)
        count, dim = vectors.shape[1:]
        first, second = directions_of(count, dim)
        main = _main_directions(vectors.astype(np.float32), first + second)
        outlines = np.zeros(len(vectors), record_type(first, count, dim, nibbles=False))
        summaries = np.zeros(len(vectors), record_type(second, count, dim, nibbles=True))
        rests = self._record(vectors, vectors, main[:, :first], 127, outlines)
        self._record(vectors, rests, main[:, first:], _NIBBLE, summaries)
        return outlines, summaries

    def _record(
        self, vectors: Float64, left: Float64, directions: Float64, largest: int, records: NDArray[Any]
    ) -> Float64:
        """Fill the records of these directions for what is left of the vectors. -> what they leave."""
        scales, codes = _codes(directions, largest)
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
        records["codes"] = codes if largest == 127 else _packed(codes)
        return np.asarray(rests)


def pooled_of(global_vectors: NDArray[Any], local_vectors: NDArray[Any]) -> NDArray[np.int8]:
    """(N, d), (N, M, d) -> (N, 2 d): the global vector and the mean of the local ones, rotated, all by one scale."""
    both = np.stack([global_vectors.astype(np.float64), local_vectors.mean(axis=1, dtype=np.float64)], axis=1)
    step = _POOLED_LARGEST / 127 / both.shape[-1] ** 0.5
    codes: NDArray[np.int8] = np.clip(np.rint(rotate(both) / step), -127, 127).astype(np.int8)
    return codes.reshape(len(both), -1)


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


def _codes(directions: Float64, largest: int) -> tuple[Float64, Float64]:
    """Directions (N, R, d) -> scales (N, R) and codes (N, R, d), whole numbers up to `largest`."""
    top = np.abs(directions).max(axis=-1, initial=0) * (1.0 if largest == 127 else _CLIPPED)
    scales = np.where(top > 0, top, 1) / largest
    return scales, np.clip(np.rint(directions / scales[..., None]), -largest, largest)


def _shares(vectors: Float64, stored: Float64) -> tuple[Float64, Float64]:
    """The whole numbers (N, M, R) that come closest to the vectors, and their scales (N, R)."""
    products = stored @ stored.transpose(0, 2, 1)
    products += 1e-9 * np.eye(products.shape[-1])  # where a direction is missing, it is all zeros
    wanted = np.linalg.solve(products, stored @ vectors.transpose(0, 2, 1)).transpose(0, 2, 1)
    top = np.abs(wanted).max(axis=1, initial=0)
    scales = np.where(top > 0, top, 1) / 127
    return np.rint(wanted / scales[:, None]), scales


def _main_directions(vectors: Float32, rank: int) -> Float64:
    """(N, M, d) -> (N, R, d): orthonormal, nearly those of the longest parts, longest first; the bound holds for any.

    From the M x M products of the vectors, which is far cheaper than a decomposition.
    """
    count = vectors.shape[1]
    products = vectors @ vectors.transpose(0, 2, 1)
    waves = np.cos(np.arange(1, count + 1)[:, None] * np.sqrt(np.arange(2, rank + 2)))  # unlike the grid's symmetries
    turns = np.broadcast_to(waves.astype(np.float32), (len(vectors), count, rank))
    for _ in range(_TURNS):
        turns = np.linalg.qr(products @ turns)[0]  # (N, M, R)
    spanned = np.linalg.qr((turns.transpose(0, 2, 1) @ vectors).transpose(0, 2, 1))[0]  # (N, d, R)
    parts = (vectors @ spanned).astype(np.float64)
    _, order = np.linalg.eigh(parts.transpose(0, 2, 1) @ parts)
    return np.asarray((spanned @ order[..., ::-1]).transpose(0, 2, 1), np.float64)
