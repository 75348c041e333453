"""The probes of many queries as matrices on the device, in the numbers and the order its kernels read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.gallery.codec import LONGEST
from tapr.match.base import Level
from tapr.match.gpu_bank import padded_dim
from tapr.score.compile import CompiledQuery

PROBES_AT_ONCE = 2304  # of all queries in one sweep: 32 queries of 72, 18 full tiles
QUERIES_AT_ONCE = 64
MAX_FEW = 128  # up to so many probes the bank is the tall side of the product
SPLIT_ABOVE = 3e-5  # estimated error of a score from fp16 probes, above which they travel in two parts
SAFE_EXPONENT = 100.0  # 2 ** this, summed over a picture, stays far inside float32: no maximum need be subtracted
_CUT = 2.0**-23  # tensor cores cut off where float32 rounds: for each product, so much more than the bound counts
_ALIGN = 256  # bytes

# How many probes -> those of a tile, and those that follow in the same tile. 0: as many tiles as it takes.
BUCKETS = {
    16: (16, 0), 32: (32, 0), 64: (64, 0), 72: (64, 8), 80: (64, 16), 96: (64, 32), 128: (128, 0), 0: (128, 0)
}  # fmt: skip


def bucket_of(probes: int) -> int:
    return next((size for size in BUCKETS if probes <= size), 0)


@dataclass(frozen=True, eq=False)
class Probes:
    """One query's probes, those of weight 0 left out, and how the kernels read them at a level: its own affair alone.

    A probe is a step times what its parts hold. In fp16 the step is its largest component, which so loses nothing:
    real encoders have a component or two that hold most of a vector. Where the rounding of the others would still
    show, a second part holds what it lost. For codes a (turned) probe is two digits, base * first + second; read
    coarsely, it is one.
    """

    query: CompiledQuery
    kept: NDArray[np.int64]  # (n,) which of the query's
    pieces: int  # parts of each probe
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
    def manner(self) -> tuple[int, bool]:
        """Queries that are read alike share a sweep."""
        return self.pieces, self.shifted


@dataclass(frozen=True, eq=False)
class Packed:
    """Queries of one manner, ready for the device; probes are padded with zeros to whole tiles.

    The second parts of a tile's probes follow its first.
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


class Packer:
    """Brings queries to one device. What it learns of a query there, it knows as long as the query lives."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._probes: WeakKeyDictionary[CompiledQuery, dict[Level, Probes]] = WeakKeyDictionary()
        self._lost: WeakKeyDictionary[CompiledQuery, dict[Level, NDArray[np.float64]]] = WeakKeyDictionary()
        self._alone: WeakKeyDictionary[CompiledQuery, dict[tuple[Level, int], Packed]] = WeakKeyDictionary()

    def lost(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """See Kernel.lost."""
        if level not in self._lost.get(query, {}):
            self.alone([query], level, padded_dim(query.dim))
        return self._lost[query][level]

    def together(self, queries: Sequence[CompiledQuery], level: Level, dim: int) -> list[tuple[list[int], Packed]]:
        """Which of the queries share a sweep, and what they share it as; for a bank of this (padded) dim."""
        if len(queries) == 1:
            return [([0], self.alone(queries, level, dim)[0])]
        while True:
            probes = [self._probes_of(query, level) for query in queries]
            groups = list(groups_of(probes))
            packed = self._pack([[probes[q] for q in group] for group in groups], level, dim)
            if packed is not None:
                return list(zip(groups, packed, strict=True))

    def alone(self, queries: Sequence[CompiledQuery], level: Level, dim: int) -> list[Packed]:
        """Each query in a sweep of its own."""
        while new := [query for query in queries if (level, dim) not in self._alone.get(query, {})]:
            packed = self._pack([[self._probes_of(query, level)] for query in new], level, dim)
            for query, one in zip(new, packed or (), strict=False):
                self._alone.setdefault(query, {})[level, dim] = one
        return [self._alone[query][level, dim] for query in queries]

    def _probes_of(self, query: CompiledQuery, level: Level) -> Probes:
        known = self._probes.setdefault(query, {})
        if level not in known:
            known[level] = probes_of(query, level)
        return known[level]

    def _pack(self, groups: Sequence[Sequence[Probes]], level: Level, dim: int) -> list[Packed] | None:
        """None: some queries need another part, which is now known of them."""
        packed, facts = pack(groups, level, dim, self._device)
        start, again = 0, False
        for probes in (probes for group in groups for probes in group):
            stop = start + len(probes)
            left, lengths, shown = facts[:, start:stop].astype(np.float64)
            start = stop
            lost = np.zeros(len(probes.query.weights))
            # what the parts leave, as float32 finds it (0.01 % more than enough), what float32 lost before, the cuts
            lost[probes.kept] = left * 1.0001 + _CUT * (probes.query.dim + 2) * lengths
            self._lost.setdefault(probes.query, {})[level] = lost
            if not probes.base and probes.pieces == 1:
                shows = float(np.abs(probes.query.weights[probes.kept].astype(np.float64)) @ shown)
                if shows > SPLIT_ABOVE:
                    self._probes[probes.query][level] = replace(probes, pieces=2)
                    again = True
        return None if again else packed


def probes_of(query: CompiledQuery, level: Level) -> Probes:
    """As a level reads them; in fp16 by one part, until the device finds that it is not enough."""
    kept = np.flatnonzero(query.weights)
    sharpness = math.log2(math.e) / query.tau
    vectors = query.probes
    length = math.sqrt(float(np.einsum("ij,ij->i", vectors, vectors).max(initial=0.0)))
    longest = LONGEST * (1 + math.sqrt(query.dim) / 254 * level.codes)  # half a step in each component
    shifted = not sharpness * length * longest < SAFE_EXPONENT
    base = digit_base(query.dim) if level.codes else 0
    return Probes(query, kept, 2 if level.codes and not level.coarse else 1, base, shifted)


def groups_of(queries: Sequence[Probes]) -> Iterator[list[int]]:
    """Cut queries into groups for one sweep each: read alike, and as many as fit, at least one."""
    for _, alike in groupby(sorted(range(len(queries)), key=lambda q: queries[q].manner), lambda q: queries[q].manner):
        group: list[int] = []
        for q in alike:
            probes = len(queries[q]) + sum(len(queries[other]) for other in group)
            if group and (probes > PROBES_AT_ONCE or len(group) == QUERIES_AT_ONCE):
                yield group
                group = []
            group.append(q)
        yield group


def pack(
    groups: Sequence[Sequence[Probes]], level: Level, dim: int, device: Any
) -> tuple[list[Packed], NDArray[np.float32]]:
    """Each group as one Packed, for a bank of this (padded) dim; and (3, n) facts of all probes, as they come: the
    length of what a probe's parts leave, its own length, and what shows of it in a score where it has one part alone.

    One journey there and one back, whatever the number of groups.
    """
    from tapr.match import gpu_prepare

    layouts = [_Layout(group) for group in groups]
    counts = [layout.count for layout in layouts]
    row_starts, part_starts = (
        _starts([one.rows for one in layouts]),
        _starts([one.rows * one.pieces for one in layouts]),
    )
    every = [probes for group in groups for probes in group]
    shapes = zip(layouts, part_starts, row_starts, strict=False)
    places = [one.places(part_start, row_start) for one, part_start, row_start in shapes]
    sharpnesses = np.repeat([math.log2(math.e) / probes.query.tau for probes in every], [len(one) for one in every])
    vectors, where, sharp, *tables = upload(
        [
            np.concatenate([probes.vectors for probes in every]),
            np.concatenate(places, axis=1),
            sharpnesses,
            *(layout.weights for layout in layouts),
            *(layout.targets(dim) for layout in layouts),
        ],
        device,
    )
    parts = torch.zeros((part_starts[-1], dim), dtype=torch.int8 if level.codes else torch.float16, device=device)
    steps, sharpness = torch.zeros((2, row_starts[-1]), device=device)
    facts = np.zeros((3, 0), np.float32)
    if sum(counts):
        vectors = gpu_prepare.turned(vectors) if level.codes else vectors
        found = []
        starts = _starts(counts)
        for (pieces, base), run in _runs([(one.pieces, one.base) for one in layouts]):
            own = slice(starts[run.start], starts[run.stop])
            if own.start < own.stop:
                found.append(
                    gpu_prepare.cut(
                        vectors[own], where[:, own].contiguous(), sharp[own], parts, steps, sharpness, base, pieces
                    )
                )
        facts = torch.cat(found, 1).cpu().numpy()
    packed = [
        Packed(
            parts[part_starts[g] : part_starts[g + 1]],
            steps[row_starts[g] : row_starts[g + 1]],
            sharpness[row_starts[g] : row_starts[g + 1]],
            tables[g],
            tables[len(groups) + g],
            layout.count,
            layout.base,
            layout.shifted,
        )
        for g, layout in enumerate(layouts)
    ]
    return packed, facts


class _Layout:
    """Where the probes of a group lie in its matrices."""

    def __init__(self, group: Sequence[Probes]) -> None:
        self._group = group
        self.pieces, self.base, self.shifted = group[0].pieces, group[0].base, group[0].shifted
        self.count = sum(len(probes) for probes in group)
        self._first, self._rest = BUCKETS[bucket_of(self.count)]
        self.rows = -(-self.count // (self._first + self._rest)) * (self._first + self._rest)

    def places(self, part_start: int, row_start: int) -> NDArray[np.int32]:
        """(3, n), for parts_kernel: each tile's first parts together, then their second ones, then the same of those
        that follow in the tile."""
        number = np.arange(self.count)
        tile, inside = np.divmod(number, self._first + self._rest)
        follows = inside >= self._first
        start = part_start + tile * self.pieces * (self._first + self._rest)
        place = start + inside + np.where(follows, (self.pieces - 1) * self._first, 0)
        return np.stack([place, np.where(follows, self._rest, self._first), row_start + number]).astype(np.int32)

    @property
    def weights(self) -> NDArray[np.float32]:
        """(rows, at least Q)"""
        weights = np.zeros((self.rows, max(16, 1 << (len(self._group) - 1).bit_length())), np.float32)
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


def upload(arrays: Sequence[NDArray[Any]], device: Any) -> list[Any]:
    """The same arrays on the device, in one journey."""
    starts = _starts([-(-array.nbytes // _ALIGN) * _ALIGN for array in arrays])
    host = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    room = host.numpy()
    for start, array in zip(starts, arrays, strict=False):
        room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
    there = host.to(device, non_blocking=True)
    return [
        there[start : start + array.nbytes].view(_dtype(array)).view(array.shape)
        for start, array in zip(starts, arrays, strict=False)
    ]


def _dtype(array: NDArray[Any]) -> Any:
    return getattr(torch, array.dtype.name)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]


def _runs(keys: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], slice]]:
    """Neighbours that are equal, as slices."""
    for key, run in groupby(range(len(keys)), lambda g: keys[g]):
        members = list(run)
        yield key, slice(members[0], members[-1] + 1)


def digit_base(dim: int) -> int:
    """The largest power of two up to 128 with which no sum of d products of two digits and a code leaves int32."""
    base = 128
    while dim * 127 * (127 * base + base // 2) >= 2**31:
        base //= 2
    return base
