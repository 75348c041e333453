"""STiTch: descriptions moved toward the edit, matched with a picture by transport in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tapr.encoders.base import Float32, unit
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet

SHIFT = 0.45
TAU = 0.02
_QUERIES = 64  # scored in one pass over the bank


class StitchRecord(Payload):
    """Descriptions of the target, sampled one by one; the paper has 5."""

    kind: ClassVar[str] = "stitch"
    descriptions: list[str] = Field(min_length=1)


class Stitch(Method):
    name, label, kinds = "stitch", "STiTch", (StitchRecord.kind,)
    ours = "a candidate's views are its global and local vectors, not 10 augmented crops"

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        edits = features.texts(query.edit for query in queries)  # (Q, d)
        probes = []
        for query, edit in zip(queries, edits, strict=True):
            described = features.texts(records.get(StitchRecord, query.id).descriptions)  # (K, d)
            probes.append(unit((1 - SHIFT) * described + SHIFT * edit))
        chunks = [
            _chunk_scores(probes[start : start + _QUERIES], features) for start in range(0, len(probes), _QUERIES)
        ]
        return np.concatenate(chunks)


def _chunk_scores(probes: Sequence[Float32], features: Features) -> Float32:
    bounds = np.cumsum([0, *(len(block) for block in probes)])
    stacked = np.ascontiguousarray(np.concatenate(probes).T)  # (d, sum of K)

    def scores(global_vectors: Float32, local_vectors: Float32) -> NDArray[Any]:
        views = np.concatenate([global_vectors[:, None], local_vectors], axis=1)  # (b, 1 + M, d)
        dots = views @ stacked  # (b, 1 + M, sum of K)
        return np.stack([-transport_cost(dots[..., a:b]) for a, b in pairwise(bounds)], axis=1)

    return np.ascontiguousarray(features.map(scores).T, np.float32)


def transport_cost(dots: NDArray[Any]) -> NDArray[Any]:
    """Cosines of views and texts (b, V, K) -> (b,): what it costs to bring the texts to the views and back.

    Each text is spread over the views, each view over the texts, by a softmax at TAU; a step costs 1 - cosine;
    the two directions' means are averaged.
    """
    cost = 1 - dots
    forth = (_softmax(dots, axis=1) * cost).sum(axis=1).mean(axis=1)
    back = (_softmax(dots, axis=2) * cost).sum(axis=2).mean(axis=1)
    return np.asarray((forth + back) / 2)


def _softmax(values: NDArray[Any], axis: int) -> NDArray[Any]:
    powers = np.exp((values - values.max(axis=axis, keepdims=True)) / TAU)
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))
