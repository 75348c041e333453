"""Finds the k best of one query by a recorded CUDA graph, without waiting for the host.

A scan and its top k are a dozen short kernels around a long one, and a new query is packed before. Launching all that
step by step takes the host as long as a scan of 100,000 pictures. So the kernels for a shape of search (rows, level,
number of probes, size of k) are recorded once and replayed: the host copies the query in, starts the graph and reads
the answer. The kernels are those of gpu.py, with the same results to the last bit. Probes in two parts are left to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.search.kernels import gpu_kernels, gpu_prepare
from tapr.search.kernels.base import Level, Rows
from tapr.search.kernels.gpu_bank import DeviceRows
from tapr.search.kernels.gpu_pack import (
    BUCKETS,
    PackedQueries,
    Probes,
    bucket_of,
    lost_of,
    needs_second_part,
    places_of,
)
from tapr.search.kernels.gpu_topk import largest
from tapr.search.kernels.top_scores import refuse_odd_scores
from tapr.types import Float32
from tapr.utils.lru import LRU

SIZES = (64, 256)  # possible numbers of results; the smallest that is at least k is used
MIN_ROWS_PER_RESULT = 16  # with fewer, nothing is recorded
MAX_RECORDINGS = 8  # per bank; each uses about 200 MB
_HEADER = 64  # bytes before the query: vectors stay aligned


@dataclass(frozen=True)
class Shape:
    level: Level
    bucket: int
    size: int
    shifted: bool
    base: int
    dim: int  # dimension of the query


@dataclass(frozen=True, eq=False)
class Answer:
    rows: Rows
    scores: Float32
    lost: NDArray[np.float64]  # see Kernel.rounding_loss


class Graphs:
    """The recordings of one device, by the rows they read. They are dropped with the rows."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._known: WeakKeyDictionary[DeviceRows, LRU[Shape, Recording]] = WeakKeyDictionary()
        self._lock = Lock()

    def search(self, probes: Probes, level: Level, held: DeviceRows, k: int) -> Answer | None:
        """Return the k best of the rows; None if gpu.py must do the search."""
        size, bucket = next((size for size in SIZES if k <= size), None), bucket_of(len(probes))
        if size is None or not len(probes) or not bucket or size * MIN_ROWS_PER_RESULT > len(held):
            return None
        if probes.pieces != (2 if probes.base else 1):
            return None
        shape = Shape(level, bucket, size, probes.shifted, probes.base, probes.query.dim)
        with self._lock:
            recordings = self._known.setdefault(held, LRU(MAX_RECORDINGS))
            recording = recordings.get(shape)
            if recording is None or not recording.reads(held):
                recording = Recording(shape, held, self._device)
                recordings.put(shape, recording)
            return recording.play(probes, k, held)


class Recording:
    """One recorded graph. It does not keep the rows alive."""

    def __init__(self, shape: Shape, held: DeviceRows, device: Any) -> None:
        self._shape, self._held = shape, ref(held)
        first, rest = BUCKETS[shape.bucket]
        self._rows = first + rest
        self._lengths = [self._rows * shape.dim, self._rows * 16, int(held.global_vectors.shape[1])]
        # the sharpness as a 64-bit number, then vectors, weights and target
        size = _HEADER + 4 * sum(self._lengths)
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._there = torch.zeros_like(self._host, device=device)
        places = places_of(self._rows, first, rest, 2 if shape.base else 1)
        self._places = torch.from_numpy(places.copy()).to(device)
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
                answer = self._steps(held)
                self._result = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True)
                self._result.copy_(answer, non_blocking=True)

    def reads(self, held: DeviceRows) -> bool:
        return self._held() is held

    def play(self, probes: Probes, k: int, held: DeviceRows) -> Answer | None:
        self._fill(probes)
        if self._graph is None:
            self._there.copy_(self._host)
            result = self._steps(held).numpy()
        else:
            self._graph.replay()
            torch.cuda.current_stream().synchronize()
            result = np.array(self._result.numpy())  # copied, because the next search overwrites it
        size = self._shape.size
        bits = result[size:].astype(np.int32).view(np.float32)
        left, lengths, shown = bits[size:].reshape(3, self._rows)[:, : len(probes)]
        if needs_second_part(probes, shown):
            return None
        return Answer(result[:k], refuse_odd_scores(bits[:k]), lost_of(probes, left, lengths))

    def _fill(self, probes: Probes) -> None:
        query, room = probes.query, self._host.numpy()
        room[:8].view(np.float64)[0] = math.log2(math.e) / query.tau
        parts = np.split(room[_HEADER:].view(np.float32), np.cumsum(self._lengths)[:-1])
        vectors, weights, target = parts[0].reshape(self._rows, -1), parts[1].reshape(self._rows, 16), parts[2]
        vectors[: len(probes)], vectors[len(probes) :] = probes.vectors, 0
        weights[: len(probes), 0], weights[len(probes) :, 0] = query.weights[probes.kept], 0
        target[: query.dim] = np.float32(query.target_weight) * query.target.astype(np.float32)

    def _steps(self, held: DeviceRows) -> Any:
        """Scan, and find the best: their rows, their scores' bits, and what rounding does to the probes."""
        shape, device = self._shape, self._there.device
        sharpness_in = self._there[:8].view(torch.float64).expand(self._rows).contiguous()
        vectors, weights, target = self._there[_HEADER:].view(torch.float32).split(self._lengths)
        vectors, weights = vectors.view(self._rows, -1), weights.view(self._rows, 16)
        pieces, dtype = (2, torch.int8) if shape.base else (1, torch.float16)
        parts = torch.zeros((pieces * self._rows, len(target)), dtype=dtype, device=device)
        steps, sharpness = torch.zeros((2, self._rows), device=device)
        read = gpu_prepare.rotated(vectors) if shape.level.codes else vectors
        facts = gpu_prepare.cut(read, self._places, sharpness_in, parts, steps, sharpness, shape.base, pieces)
        packed = PackedQueries(parts, steps, sharpness, weights, target[None], shape.bucket, shape.base, shape.shifted)
        scores = gpu_kernels.score_rows(held.local_vectors, held.scales, held.global_vectors, packed)  # (1, N)
        rows, best = largest(scores, shape.size)
        return torch.cat([rows[0], _bits(best[0]), _bits(facts.flatten())])


def _bits(numbers: Any) -> Any:
    return numbers.contiguous().view(torch.int32).long()
