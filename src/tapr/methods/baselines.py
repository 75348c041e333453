"""Simple baselines: the picture, the edit or the target sentence alone, sums of two, and MaxSim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features, to_same_device
from tapr.methods.records import RecordSet
from tapr.search.probe_means import BEST, ProbeMeans, means_kernel
from tapr.types import Float32

_QUERIES = 1024  # queries per pass over the bank
_IMAGE = 0.5  # weight of the reference beside the target sentence
_COLUMNS = 192  # probes per product: with a block of pictures they fit a core's cache


class ImageOnly(Method):
    name, label, order = "image", "Image only", 10
    help = "The reference picture alone."

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.query_vectors(queries))


class TextOnly(Method):
    name, label, order = "text", "Edit only", 11
    help = "The edit alone."

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.texts(query.edit for query in queries))


class Sum(Method):
    name, label, order = "sum", "Image + edit", 12
    help = "The similarities of the reference and of the edit, added."
    constants: ClassVar = {"image_weight": (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)}
    image_weight = 1.0

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        image = ImageOnly().score(queries, records, features)
        return np.float32(self.image_weight) * image + TextOnly().score(queries, records, features)


class TargetOnly(Method):
    name, label, order, reads_spec = "target", "Target only", 13, True
    help = "The target sentence alone."

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        return features.similarities(features.texts(records.spec(query.id).target for query in queries))


class TargetAndImage(Method):
    name, label, order, reads_spec = "target+image", f"Target + {_IMAGE:g} image", 14, True
    help = "The target sentence and some of the reference picture."
    ours = f"the sum and its weight {_IMAGE:g}"
    constants: ClassVar = {"image_weight": (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)}
    image_weight = _IMAGE

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        target = features.texts(records.spec(query.id).target for query in queries)  # (Q, d)
        reference = features.query_vectors(queries)
        return features.similarities(target + np.float32(self.image_weight) * reference)


class MaxSim(Method):
    name, label, order, reads_spec = "maxsim", "MaxSim", 15, True
    help = "The target and the atoms to be seen, each with its best local vector."
    shared_tau = BEST
    ours = "probes are the target sentence and the Add and Preserve atoms, each with its best local vector; their mean"

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        scores = []
        for start in range(0, len(queries), _QUERIES):
            specs = [records.spec(query.id) for query in queries[start : start + _QUERIES]]
            probes = [(spec.target, *spec.add, *spec.preserve) for spec in specs]
            unique = sorted({phrase for phrases in probes for phrase in phrases})
            best = best_matches(features.atoms(unique), features)
            row = {phrase: place for place, phrase in enumerate(unique)}
            scores += [best[[row[phrase] for phrase in phrases]].mean(axis=0) for phrases in probes]
        return np.stack(scores)


ROWS = (ImageOnly, TextOnly, Sum, TargetOnly, TargetAndImage, MaxSim)
IN_EVERY_TABLE = (ImageOnly, TextOnly, Sum, TargetAndImage)  # baselines that every table shows


def best_matches(probes: Float32, features: Features) -> Float32:
    """(P, d) -> (P, N): each probe's largest dot product with a picture's local vectors."""
    known = features.known
    if known is not None:
        rows = np.stack(known.each(probes, BEST))
        return np.asarray(rows if known.back is None else rows[:, known.back], np.float32)
    kernel = means_kernel(features.bank)
    if kernel is not None:
        return np.asarray(ProbeMeans(features.bank, kernel).of(probes, (BEST,))[0], np.float32)
    columns = np.ascontiguousarray(probes.T)

    def best(_: Any, local_vectors: Any) -> Any:
        if not isinstance(local_vectors, np.ndarray):  # on a GPU
            return (local_vectors @ to_same_device(columns, local_vectors)).amax(1)
        out = np.empty((len(local_vectors), columns.shape[1]), np.float32)
        for start in range(0, columns.shape[1], _COLUMNS):
            part = slice(start, start + _COLUMNS)
            # one product per picture: in one product for all, a picture's position could change its last bits and break
            # ties
            out[:, part] = np.matmul(local_vectors, columns[:, part]).max(axis=1)
        return out

    return np.ascontiguousarray(features.map(best).T)
