"""Runs the whole search of one query as a recorded CUDA graph, without waiting for the host.

A search is a few dozen short kernels around one long scan. Launching them one by one takes the host half as long as the
scan. So the kernels for a shape of search (bank, levels, number of probes, size of k) are recorded once and replayed:
the host copies the query in, starts the graph and reads the answer. The kernels are those of gpu.py, with the same
results to the last bit. A graph does not handle more candidates than it has room for, probes in two parts, or pictures
that are not all on the device in gallery order. These cases are left to gpu.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.search.kernels import gpu_kernels, gpu_prepare
from tapr.search.kernels.base import Level, Rows
from tapr.search.kernels.bounds import ErrorBound, error_bound_without_probes
from tapr.search.kernels.gpu_bank import DeviceRows
from tapr.search.kernels.gpu_pack import (
    BUCKETS,
    PackedQueries,
    Probes,
    bucket_of,
    lost_length,
    lost_of,
    needs_second_part,
    places_of,
)
from tapr.search.kernels.gpu_topk import largest
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.types import Float32
from tapr.utils.lru import LRU

SIZES = (64, 256)  # possible numbers of results; the smallest that is at least k is used
CANDIDATES = 1024  # pictures that a recording can re-score
MAX_RECORDINGS = 8  # recordings per bank; each uses about 200 MB


@dataclass(frozen=True)
class Shape:
    levels: tuple[Level, ...]  # one level, or codes and then vectors
    bucket: int
    size: int
    shifted: tuple[bool, ...]
    bases: tuple[int, ...]
    dim: int  # dimension of the query


@dataclass(frozen=True, eq=False)
class Answer:
    positions: Rows
    scores: Float32
    rescored: int | None
    lost: tuple[NDArray[np.float64], ...]  # per level


class Graphs:
    """The recordings of one device, by the rows they read. They are dropped with the rows."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._known: WeakKeyDictionary[DeviceRows, LRU[Shape, Recording]] = WeakKeyDictionary()
        self._lock = Lock()

    def search(
        self,
        probes: Sequence[Probes],
        levels: Sequence[Level],
        held: Sequence[DeviceRows],
        errors: Any,
        k: int,
        meanwhile: Callable[[], bool],
    ) -> Answer | None:
        """`probes` and `held`: the query and all rows, per level. Returns None if gpu.py must do the search.

        `meanwhile` is called while the device works; if it returns False, the answer is discarded.
        """
        first = probes[0]
        size = next((size for size in SIZES if k <= size), None)
        if size is None or not len(first) or not bucket_of(len(first)) or size > len(held[0]) // 16:
            return None
        if any(one.pieces != (2 if one.base else 1) for one in probes):
            return None
        shape = Shape(
            tuple(levels), bucket_of(len(first)), size, tuple(one.shifted for one in probes),
            tuple(one.base for one in probes), first.query.dim,
        )  # fmt: skip
        with self._lock:
            recordings = self._known.setdefault(held[-1], LRU(MAX_RECORDINGS))
            recording = recordings.get(shape)
            if recording is None or not recording.reads(held):
                recording = Recording(shape, held, errors, self._device)
                recordings.put(shape, recording)
            return recording.play(probes, k, held, meanwhile)


class Recording:
    """One recorded graph. It does not keep the rows alive."""

    def __init__(self, shape: Shape, held: Sequence[DeviceRows], errors: Any, device: Any) -> None:
        self._shape, self._errors, self._first = shape, errors, ref(held[0])
        self._locals = int(held[0].local_vectors.shape[1])
        first, rest = BUCKETS[shape.bucket]
        self._rows = first + rest
        width = held[0].global_vectors.shape[1]
        lengths = {"vectors": self._rows * shape.dim, "weights": self._rows * 16, "target": width}
        self._floats = sum(lengths.values())
        self._cuts = np.cumsum([0, *lengths.values()])
        # input buffer: first 64-bit numbers (the sharpness, the index of the last leader that counts, terms of the
        # error bound), then the query
        self._wide = 8
        self._host = torch.zeros(self._wide * 8 + self._floats * 4, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._there = torch.zeros_like(self._host, device=device)
        self._places = [
            torch.from_numpy(places_of(self._rows, first, rest, 2 if base else 1).copy()).to(device)
            for base in shape.bases
        ]
        self._graph: Any = None
        if device.type == "cuda":
            aside = torch.cuda.Stream(device)
            aside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(aside):
                self._steps(held)  # warm-up: compiles kernels and allocates memory
            torch.cuda.current_stream(device).wait_stream(aside)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._there.copy_(self._host, non_blocking=True)
                found = self._steps(held)
                self._result = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
                self._result.copy_(found, non_blocking=True)

    def reads(self, held: Sequence[DeviceRows]) -> bool:
        return self._first() is held[0]

    def play(
        self, probes: Sequence[Probes], k: int, held: Sequence[DeviceRows], meanwhile: Callable[[], bool]
    ) -> Answer | None:
        self._fill(probes[0], k)
        if self._graph is None:
            self._there.copy_(self._host)
            wanted, result = meanwhile(), self._steps(held).numpy()
        else:
            self._graph.replay()
            wanted = meanwhile()
            torch.cuda.current_stream().synchronize()
            result = np.array(self._result.numpy())  # copied, because the next search overwrites it
        return self._read(result, probes, k) if wanted else None

    def _fill(self, probes: Probes, k: int) -> None:
        query, room = probes.query, self._host.numpy()
        wide, floats = room[: self._wide * 8].view(np.float64), room[self._wide * 8 :].view(np.float32)
        wide[0], wide[1] = math.log2(math.e) / query.tau, k - 1
        if len(self._shape.levels) > 1:
            bound = error_bound_without_probes(query, self._shape.levels[0], self._shape.levels[1], self._locals)
            wide[2:7] = bound.steepness, bound.vectors, bound.coarse, bound.sums, bound.rounding
        vectors, weights, target = (
            floats[start:stop] for start, stop in zip(self._cuts[:-1], self._cuts[1:], strict=True)
        )
        own = vectors.reshape(self._rows, -1)
        own[: len(probes)] = probes.vectors
        own[len(probes) :] = 0
        table = weights.reshape(self._rows, 16)
        table[: len(probes), 0] = query.weights[probes.kept]
        table[len(probes) :, 0] = 0
        target[: query.dim] = np.float32(query.target_weight) * query.target.astype(np.float32)

    def _steps(self, held: Sequence[DeviceRows]) -> Any:
        """The search itself. Returns a row of 64-bit integers, which `_read` decodes."""
        shape, device = self._shape, self._there.device
        wide = self._there[: self._wide * 8].view(torch.float64)
        vectors, weights, target = (
            self._there[self._wide * 8 + 4 * start : self._wide * 8 + 4 * stop].view(torch.float32)
            for start, stop in zip(self._cuts[:-1].tolist(), self._cuts[1:].tolist(), strict=True)
        )
        vectors = vectors.view(self._rows, -1)
        sharp = wide[:1].expand(self._rows).contiguous()
        packed, facts = [], []
        for level, base, shifted, places in zip(shape.levels, shape.bases, shape.shifted, self._places, strict=True):
            pieces = 2 if base else 1
            dtype = torch.int8 if base else torch.float16
            parts = torch.zeros((pieces * self._rows, len(target)), dtype=dtype, device=device)
            steps, sharpness = torch.zeros((2, self._rows), device=device)
            own = gpu_prepare.rotated(vectors) if level.codes else vectors
            facts.append(gpu_prepare.cut(own, places, sharp, parts, steps, sharpness, base, pieces))
            packed.append(
                PackedQueries(
                    parts, steps, sharpness, weights.view(self._rows, 16), target[None], shape.bucket, base, shifted
                )
            )
        scores = _scored(held[0], packed[0])  # (1, N)
        positions, best = largest(scores, shape.size)
        if len(shape.levels) == 1:
            return torch.cat([positions[0], _bits(best[0]), _bits(facts[0].flatten())])
        again = _scored(held[1][positions[0]], packed[1])[0]  # exact scores of the leaders, (size,)
        floor = again[: shape.size].sort(descending=True).values.gather(0, wide[1:2].long())
        lost = (weights.view(self._rows, 16)[:, 0].abs().double() * _lost(facts, shape.dim)).sum()
        bound = ErrorBound(wide[2], wide[3], wide[4], lost, wide[5], wide[6]).of(self._errors, torch)
        highest = torch.nextafter(scores[0] + bound, torch.full_like(bound, math.inf))
        can = (highest >= floor).scatter(0, positions[0], torch.zeros_like(positions[0], dtype=torch.bool))
        number = can.cumsum(0)  # 1-based index among those that can reach the top k; they are compacted in order
        slots = torch.where(can, number - 1, CANDIDATES).clamp(max=CANDIDATES)
        every = torch.arange(len(can), device=device)
        chosen = torch.zeros(CANDIDATES + 1, dtype=torch.int64, device=device).scatter(0, slots, every)[:CANDIDATES]
        read = _scored(held[1][chosen], packed[1])[0]
        return torch.cat(
            [number[-1:], positions[0], chosen, _bits(again), _bits(read), *(_bits(one.flatten()) for one in facts)]
        )

    def _read(self, result: NDArray[np.int64], probes: Sequence[Probes], k: int) -> Answer | None:
        size, levels = self._shape.size, len(self._shape.levels)
        facts = result[len(result) - levels * 3 * self._rows :].astype(np.int32).view(np.float32)
        lost = []
        for one, (left, lengths, shown) in zip(probes, facts.reshape(levels, 3, self._rows), strict=True):
            if needs_second_part(one, shown[: len(one)]):
                return None
            lost.append(lost_of(one, left[: len(one)], lengths[: len(one)]))
        if levels == 1:
            positions, scores = result[:size], result[size : 2 * size].astype(np.int32).view(np.float32)
            return Answer(positions[:k], scores[:k], None, tuple(lost))
        count = int(result[0])
        if count > CANDIDATES:
            return None
        first, chosen = result[1 : 1 + size], result[1 + size : 1 + size + CANDIDATES]
        scores = result[1 + size + CANDIDATES :][: size + CANDIDATES].astype(np.int32).view(np.float32)
        positions = np.concatenate([first, chosen[:count]])
        scores = refuse_odd_scores(np.concatenate([scores[:size], scores[size : size + count]]))
        order = np.argsort(positions)
        positions, scores = positions[order], scores[order]
        best = best_of(scores, k)
        return Answer(positions[best], scores[best], len(positions), tuple(lost))


def _scored(rows: DeviceRows, packed: PackedQueries) -> Any:
    return gpu_kernels.score_rows(rows.local_vectors, rows.scales, rows.global_vectors, packed)


def _bits(numbers: Any) -> Any:
    return numbers.contiguous().view(torch.int32).long()


def _lost(facts: Sequence[Any], dim: int) -> Any:
    """(rows,): rounding loss, summed over the levels."""
    return sum(lost_length(one[0].double(), one[1].double(), dim) for one in facts)
