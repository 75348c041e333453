"""TAPR: Target, Add, Preserve and Remove, through the same compiled query and kernel as a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.encoders.base import Float32
from tapr.factorize.records import SPEC
from tapr.match import score_many
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.query import TAU, compile_query
from tapr.spec import DEFAULT_WEIGHTS, Weights

_QUERIES = 128  # scored in one sweep: each brings its reference's local vectors


class Tapr(Method):
    name, label, kinds = "tapr", "TAPR", (SPEC,)
    ours = "theta and the extractor of local vectors"
    tuned_by = frozenset({"weights", "theta", "tau", "kernel", "explain"})  # theta: the weights, in tapr eval

    def __init__(self, weights: Weights = DEFAULT_WEIGHTS, tau: float = TAU) -> None:
        self.weights, self.tau = weights, tau

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        chunks = [
            self._score(queries[start : start + _QUERIES], records, features)
            for start in range(0, len(queries), _QUERIES)
        ]
        return np.concatenate(chunks)

    def _score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        references = features.references([query.reference for query in queries])
        compiled = [
            compile_query(records.spec(query.id), references[row : row + 1], features.encoder, self.weights, self.tau)
            for row, query in enumerate(queries)
        ]
        return score_many(compiled, features.bank)
