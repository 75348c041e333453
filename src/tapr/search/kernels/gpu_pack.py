"""Packs the probes of many queries into device matrices, in the number format and order that the kernels read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Level
from tapr.search.kernels.bounds import lengths_of
from tapr.store.codec import LONGEST

PROBES_AT_ONCE = 2304  # per sweep: 32 queries of 72 probes, 18 full tiles
QUERIES_AT_ONCE = 64
MAX_LOCALS = 256  # per picture: the copy engine's limit
MAX_FEW = 128  # up to this many probes, the bank is the tall side of the product
SPLIT_ABOVE = 3e-5  # if the estimated score error of fp16 probes is larger, probes are sent in two parts
# 2 ** this, summed over a picture, is far from overflow in float32: no maximum must be subtracted
SAFE_EXPONENT = 100.0
_CUT = 2.0**-23  # tensor cores truncate where float32 rounds: extra error per product
_ALIGN = 256  # bytes

# number of probes -> first and further probes of a tile; 0: as many tiles as needed
BUCKETS = {
    16: (16, 0), 32: (32, 0), 64: (64, 0), 72: (64, 8), 80: (64, 16), 96: (64, 32), 128: (128, 0), 0: (128, 0)
}  # fmt: skip


def bucket_of(probes: int) -> int:
    return next((size for size in BUCKETS if probes <= size), 0)


@dataclass(frozen=True, eq=False)
class Probes:
    """One query's probes without those of weight 0, and how the kernels read them at a level. Independent of other
    queries.

    A probe is a step times its parts. In fp16 the step is the probe's largest component, which is then exact: real
    encoders have one or two components that hold most of a vector. If rounding the others would be visible in a score,
    a second part holds the remainder. For codes a (rotated) probe has two digits, base * first + second; in a coarse
    reading only one.
    """

    query: CompiledQuery
    kept: NDArray[np.int64]  # (n,) indices among the query's probes
    pieces: int  # parts per probe
    base: int  # of the int8 digits; 0 for fp16
    shifted: bool  # a softmax must subtract its maximum, or 2 ** exponent could overflow

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """(n, d)"""
        probes = self.query.probes
        return np.asarray(probes if len(self.kept) == len(probes) else probes[self.kept], np.float32)

    @property
    def read_mode(self) -> tuple[int, bool]:
        """Queries with the same mode can share a sweep."""
        return self.pieces, self.shifted


@dataclass(frozen=True, eq=False)
class PackedQueries:
    """Queries of one read mode in device format. Probes are padded with zeros to whole tiles.

    The second parts of a tile's probes follow its first parts.
    """

    parts: Any  # (1 or 2 times rows, d) fp16 or int8
    steps: Any  # (rows,)
    sharpnesses: Any  # (rows,) step * log2(e) / tau
    weights: Any  # (rows, at least Q)
    targets: Any  # (Q, d) float32
    count: int  # probes, without the padding
    base: int
    shifted: bool

    @property
    def queries(self) -> int:
        return len(self.targets)

    @property
    def rows(self) -> int:
        return len(self.sharpnesses)

    @property
    def pieces(self) -> int:
        return len(self.parts) // self.rows if self.rows else 1

    @property
    def precision(self) -> str:
        return ("int8" if self.base else "fp16") + ("", "x2")[self.pieces - 1]

    @property
    def bucket(self) -> int:
        return bucket_of(self.count)

    @property
    def first(self) -> int:
        return BUCKETS[self.bucket][0]

    @property
    def rest(self) -> int:
        return BUCKETS[self.bucket][1]

    @property
    def tiles(self) -> int:
        return self.rows // (self.first + self.rest)


Vectors = dict[tuple[tuple[int, ...], bool], Any]  # by the ids of the queries, and whether they are rotated


class ProbeErrors:
    """(3, n) being copied from the device, per probe: the length of the remainder, the probe's length, and the effect
    of the remainder on a score if there is only one part.
    """

    def __init__(self, found: Any) -> None:
        self._host, self._there = found, None
        if found.device.type == "cuda":
            self._host = torch.empty(found.shape, pin_memory=True)
            self._host.copy_(found, non_blocking=True)
            self._there = torch.cuda.Event()
            self._there.record()

    def read(self) -> NDArray[np.float32]:
        if self._there is not None:
            self._there.synchronize()
        return np.asarray(self._host.numpy())


def needs_second_part(probes: Probes, shown: NDArray[Any]) -> bool:
    """Whether the remainder of one fp16 part would be visible in a score."""
    weights = np.abs(probes.query.weights[probes.kept].astype(np.float64))
    return not probes.base and probes.pieces == 1 and float(weights @ shown) > SPLIT_ABOVE


def lost_of(probes: Probes, left: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.float64]:
    """See Kernel.rounding_loss. Computed from the probes' remainders and lengths."""
    lost = np.zeros(len(probes.query.weights))
    # the remainder with 0.01 % added for float32, earlier float32 rounding, and truncation
    kept = left.astype(np.float64) * 1.0001 + _CUT * (probes.query.dim + 2) * lengths.astype(np.float64)
    lost[probes.kept] = kept
    return lost


def probes_of(query: CompiledQuery, level: Level) -> Probes:
    """A query's probes for a level. In fp16 with one part, until the device reports that this is not enough."""
    kept = np.flatnonzero(query.weights)
    sharpness = math.log2(math.e) / query.tau
    length = float(lengths_of(query).max(initial=0.0))
    longest = LONGEST * (1 + math.sqrt(query.dim) / 254 * level.codes)  # codes may be longer: half a step per component
    shifted = not sharpness * length * longest < SAFE_EXPONENT
    base = digit_base(query.dim) if level.codes else 0
    return Probes(query, kept, 2 if level.codes and not level.coarse else 1, base, shifted)


def groups_of(queries: Sequence[Probes]) -> Iterator[list[int]]:
    """Split queries into groups that share a sweep: the same read mode, and as many as fit."""
    for _, alike in groupby(
        sorted(range(len(queries)), key=lambda q: queries[q].read_mode), lambda q: queries[q].read_mode
    ):
        group: list[int] = []
        for q in alike:
            probes = len(queries[q]) + sum(len(queries[other]) for other in group)
            if group and (probes > PROBES_AT_ONCE or len(group) == QUERIES_AT_ONCE):
                yield group
                group = []
            group.append(q)
        yield group


def pack(
    groups: Sequence[Sequence[Probes]], level: Level, dim: int, device: Any, known: Vectors | None = None
) -> tuple[list[PackedQueries], ProbeErrors]:
    """Pack each group for a bank with this (padded) dim. Also returns the errors of all probes, which arrive later.

    One transfer in each direction, whatever the number of groups. `known`: vectors that are on the device already.
    """
    from tapr.search.kernels import gpu_prepare

    layouts = [_Layout(group) for group in groups]
    every = [probes for group in groups for probes in group]
    counts = _starts([layout.count for layout in layouts])
    rows, parts = _starts([one.rows for one in layouts]), _starts([one.rows * one.pieces for one in layouts])
    places = [one.places + np.array([[parts[g]], [0], [rows[g]]]) for g, one in enumerate(layouts)]
    known = {} if known is None else known
    order = tuple(id(probes.query) for probes in every)
    new = () if (order, False) in known else (_Joined([probes.vectors for probes in every]),)
    where, sharp, weights, targets, *vectors = upload(
        [
            _joined(places, axis=1).astype(np.int32, copy=False),
            np.repeat([math.log2(math.e) / one.query.tau for one in every], [len(one) for one in every]),
            _joined([layout.weights.ravel() for layout in layouts]),
            _joined([layout.targets(dim) for layout in layouts]),
            *new,
        ],
        device,
    )
    if new:
        known[order, False] = vectors[0]
    if level.codes and (order, True) not in known:
        known[order, True] = gpu_prepare.rotated(known[order, False])
    own_vectors = known[order, level.codes]
    cut = torch.zeros((parts[-1], dim), dtype=torch.int8 if level.codes else torch.float16, device=device)
    steps, sharpness = torch.zeros((2, rows[-1]), device=device)
    found = []
    if counts[-1]:
        for (pieces, base), run in _runs([(one.pieces, one.base) for one in layouts]):
            own = slice(counts[run.start], counts[run.stop])
            if own.start < own.stop:
                here = (own_vectors, where, sharp)
                if own != slice(0, counts[-1]):
                    here = (own_vectors[own], where[:, own].contiguous(), sharp[own])
                found.append(gpu_prepare.cut(*here, cut, steps, sharpness, base, pieces))
    facts = ProbeErrors(found[0] if len(found) == 1 else torch.cat([torch.zeros((3, 0), device=device), *found], 1))
    packed, width, query = [], 0, 0
    for g, one in enumerate(layouts):
        own = slice(rows[g], rows[g + 1])
        table = weights[width : width + one.rows * one.width].view(one.rows, one.width)
        asked = targets[query : query + one.queries]
        packed.append(
            PackedQueries(
                cut[parts[g] : parts[g + 1]], steps[own], sharpness[own], table, asked, one.count, one.base, one.shifted
            )
        )
        width, query = width + one.rows * one.width, query + one.queries
    return packed, facts


class _Layout:
    """The positions of a group's probes in its matrices."""

    def __init__(self, group: Sequence[Probes]) -> None:
        self._group = group
        self.pieces, self.base, self.shifted = group[0].pieces, group[0].base, group[0].shifted
        self.queries, self.count = len(group), sum(len(probes) for probes in group)
        first, rest = BUCKETS[bucket_of(self.count)]
        self.rows = -(-self.count // (first + rest)) * (first + rest)
        self.width = max(16, 1 << (len(group) - 1).bit_length())  # of the weights
        self.places = places_of(self.count, first, rest, self.pieces)

    @property
    def weights(self) -> NDArray[np.float32]:
        """(rows, at least Q)"""
        weights = np.zeros((self.rows, self.width), np.float32)
        start = 0
        for q, probes in enumerate(self._group):
            weights[start : start + len(probes), q] = probes.query.weights[probes.kept]
            start += len(probes)
        return weights

    def targets(self, dim: int) -> NDArray[np.float32]:
        """(Q, d) weighted"""
        targets = np.zeros((len(self._group), dim), np.float32)
        for q, query in enumerate(probes.query for probes in self._group):
            targets[q, : query.dim] = np.float32(query.target_weight) * query.target.astype(np.float32)
        return targets


@lru_cache(maxsize=512)
def places_of(count: int, first: int, rest: int, pieces: int) -> NDArray[np.int32]:
    """(3, n), for parts_kernel: the first parts of a tile, then their second parts, then the same for the tile's
    further probes.
    """
    number = np.arange(count)
    tile, inside = np.divmod(number, first + rest)
    follows = inside >= first
    place = tile * pieces * (first + rest) + inside + np.where(follows, (pieces - 1) * first, 0)
    return np.stack([place, np.where(follows, rest, first), number]).astype(np.int32)


class _Joined:
    """A lazy concatenation: the arrays are copied once, to their destination."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays, self.dtype = arrays, arrays[0].dtype
        self.shape = (sum(len(array) for array in arrays), *arrays[0].shape[1:])
        self.nbytes = sum(array.nbytes for array in arrays)

    def into(self, room: NDArray[Any]) -> None:
        np.concatenate(self._arrays, out=room)


def _joined(arrays: Sequence[NDArray[Any]], axis: int = 0) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=axis)


def upload(arrays: Sequence[NDArray[Any] | _Joined], device: Any) -> list[Any]:
    """Copy arrays to the device in one transfer."""
    starts = _starts([-(-array.nbytes // _ALIGN) * _ALIGN for array in arrays])
    host = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    room = host.numpy()
    for start, array in zip(starts, arrays, strict=False):
        place = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        if isinstance(array, _Joined):
            array.into(place)
        else:
            place[...] = array
    there = host.to(device, non_blocking=True)
    return [
        there[start : start + array.nbytes].view(_dtype(array)).view(array.shape)
        for start, array in zip(starts, arrays, strict=False)
    ]


def _dtype(array: NDArray[Any] | _Joined) -> Any:
    return getattr(torch, array.dtype.name)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]


def _runs(keys: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], slice]]:
    """Runs of equal keys, as slices."""
    for key, run in groupby(range(len(keys)), lambda g: keys[g]):
        members = list(run)
        yield key, slice(members[0], members[-1] + 1)


def digit_base(dim: int) -> int:
    """The largest power of two up to 128 for which a sum of d products of two digits and a code fits int32."""
    base = 128
    while dim * 127 * (127 * base + base // 2) >= 2**31:
        base //= 2
    return base
