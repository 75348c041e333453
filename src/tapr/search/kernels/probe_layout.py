"""The order of sketches' probes in the compiled kernel's memory: side by side, with each sketch's directions in one
panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.search.kernels.sketch import Sketch
from tapr.types import Float32

_PANEL, _VECTOR = 64, 16  # native/job.h: kPanel * kLanes, kLanes


@dataclass(frozen=True, eq=False)
class ProbeLayout:
    """Arrays (P,) in the order of the kernel's probes."""

    sketches: Sequence[Sketch]
    source: NDArray[np.int64]  # index in the concatenated probes of all readings; -1: padding
    weights: Float32  # 0 for directions: the sketch adds what they stand for
    sharpness: Float32
    owner: NDArray[np.int32]
    places: NDArray[np.int64]  # (S, 4), for sketches with directions: see native/module.cpp

    @classmethod
    def of(cls, sketches: Sequence[Sketch]) -> ProbeLayout:
        source: list[int] = []
        weights, owner, places, before = [], [], [], 0
        for number, sketch in enumerate(sketches):
            words, directions = len(sketch.words.weights), len(sketch.directions)
            gap = -len(source) % _PANEL if len(source) % _PANEL + directions > _PANEL else 0
            if directions:
                count = -(-len(sketch.rests) // _VECTOR) * _VECTOR
                places.append((number, len(source) + gap, directions, count))
            source += [-1] * gap
            source += range(before + words, before + words + directions)
            source += range(before, before + words)
            weights += [np.zeros(gap + directions, np.float32), np.asarray(sketch.words.weights, np.float32)]
            owner += [number] * (gap + directions + words)
            before += words + directions
        sharpness = np.array([math.log2(math.e) / sketch.words.tau for sketch in sketches], np.float32)
        return cls(
            sketches,
            np.array(source, np.int64),
            np.concatenate(weights),
            sharpness[owner],
            np.array(owner, np.int32),
            np.array(places, np.int64).reshape(-1, 4),
        )

    def spread(self, vectors: Float32) -> Float32:
        """Reorder the concatenated probes of all readings: (n, d) -> (P, d)."""
        found = np.asarray(vectors, np.float32)[self.source]
        found[self.source < 0] = 0
        return np.ascontiguousarray(found)

    def numbers(self, limits: Sequence[float]) -> Float32:
        """For each sketch with directions: its limit, weights, coefficients and remainder lengths."""
        found = []
        for number, _, directions, count in self.places.tolist():
            sketch = self.sketches[number]
            table = np.zeros((directions + 2, count), np.float32)
            table[0, : len(sketch.rests)] = sketch.alike.weights
            table[1:-1, : len(sketch.rests)] = sketch.coefficients.T
            table[-1, : len(sketch.rests)] = sketch.rests
            limit = np.nextafter(np.float32(limits[number]), np.float32(math.inf))
            found += [limit.reshape(1), table.reshape(-1)]
        return np.concatenate(found) if found else np.zeros(0, np.float32)
