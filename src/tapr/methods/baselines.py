"""What no method should lose to: the picture alone, the text alone, their sum, the target sentence, MaxSim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.factorize.records import SPEC
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features
from tapr.methods.records import RecordSet

_QUERIES = 64  # scored in one pass over the bank


class ImageOnly(Method):
    name, label = "image", "Image only"

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.reference_vectors([query.reference for query in queries]))


class TextOnly(Method):
    name, label = "text", "Text only"

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.texts(query.edit for query in queries))


class Sum(Method):
    name, label = "sum", "Image + text"

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        return ImageOnly().score(queries, records, features) + TextOnly().score(queries, records, features)


class TargetOnly(Method):
    name, label, kinds = "target", "Target only", (SPEC,)

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.texts(records.spec(query.id).target for query in queries))


class MaxSim(Method):
    name, label, kinds = "maxsim", "MaxSim", (SPEC,)
    ours = "probes are the target sentence and the Add and Preserve atoms, each with its best local vector; their mean"

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        probes = []
        for query in queries:
            spec = records.spec(query.id)
            probes.append(features.atoms((spec.target, *spec.add, *spec.preserve)))
        chunks = [
            _best_matches(probes[start : start + _QUERIES], features) for start in range(0, len(probes), _QUERIES)
        ]
        return np.concatenate(chunks)


def _best_matches(probes: Sequence[Float32], features: Features) -> Float32:
    """-> (Q, N): the mean over a query's probes of the largest dot product."""
    starts = np.cumsum([0, *(len(block) for block in probes[:-1])])
    sizes = np.array([len(block) for block in probes])
    stacked = np.ascontiguousarray(np.concatenate(probes).T)  # (d, P)

    def scores(_: Float32, local_vectors: Float32) -> NDArray[Any]:
        best = (local_vectors @ stacked).max(axis=1)  # (b, P)
        return np.asarray(np.add.reduceat(best, starts, axis=1) / sizes)

    return np.ascontiguousarray(features.map(scores).T, np.float32)
