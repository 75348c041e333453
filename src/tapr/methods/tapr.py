"""TAPR: Target, Add, Preserve and Remove, through the same compiled query and kernel as a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np

from tapr.encoders.base import Evidence
from tapr.methods.base import Method, QueryLike, Setting
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.query.scoring import DEFAULT_SCORING, PAPER, Scoring
from tapr.query.spec import DEFAULT_WEIGHTS, Weights
from tapr.score.compile import TAU, EncodedSpec
from tapr.search.probe_means import score_shared
from tapr.search.reference_weight import decide
from tapr.types import Float32

# at most as many settings as any other method has
_REFERENCE_WEIGHTS: tuple[float | None, ...] = (None, 0.1, 0.2, 0.3, 0.4, 0.5)
_THETA: dict[str, tuple[Any, ...]] = {"add": (0.25, 0.5, 1.0), "preserve": (0.25, 0.5), "remove": (0.0, 0.3, 0.6)}
_QUERIES = 128  # scored in one sweep: each brings its reference's local vectors


class Tapr(Method):
    name, label, order, reads_spec = "tapr", "TAPR", 91, True
    help = "Target, Add, Preserve and Remove over local evidence, and how much of the reference stays."
    ours = "theta, the extractor of local vectors, and how much of the reference stays"
    # theta: the weights, in tapr eval
    tuned_by = frozenset({"weights", "theta", "tau", "score", "reference_weight", "reference_features", "kernel"})

    constants: ClassVar = {"reference_weight": _REFERENCE_WEIGHTS, **_THETA}

    # no weights: the spec's own, and where it has none the defaults
    def __init__(self, weights: Weights | None = None, tau: float = TAU, scoring: Scoring = DEFAULT_SCORING) -> None:
        self.weights, self.tau, self.scoring = weights, tau, scoring
        self.shared_tau = tau

    def settings(self) -> list[dict[str, Any]]:
        """A reference weight of None is the rule's, or the spec's own."""
        known = {name: values for name, values in self.constants.items() if name in _THETA or self.scoring != PAPER}
        now: dict[str, Any] = {"reference_weight": self.scoring.reference_weight}
        now.update(asdict(self.weights or DEFAULT_WEIGHTS))
        own = {name: now[name] for name in known}
        every = (dict(zip(known, values, strict=True)) for values in product(*known.values()))
        return [own, *(values for values in every if values != own)]

    def with_constants(self, values: Mapping[str, Any]) -> Self:
        theta = replace(self.weights or DEFAULT_WEIGHTS, **{name: values[name] for name in _THETA})
        made = copy(self)
        made.weights = theta
        if "reference_weight" in values:
            made.scoring = replace(self.scoring, reference_weight=values["reference_weight"])
        return made

    @classmethod
    def make(cls, setting: Setting) -> Self:
        return cls(setting.weights, setting.tau, setting.scoring)

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        # group queries by reference: they share its vectors
        order = sorted(range(len(queries)), key=lambda place: queries[place].reference)
        scores = np.empty((len(queries), len(features.bank)), np.float32)
        for start in range(0, len(order), _QUERIES):
            chunk = order[start : start + _QUERIES]
            scores[chunk] = self._score([queries[place] for place in chunk], records, features)
        return scores

    def _score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        encoded = [
            EncodedSpec.of(records.spec(query.id), evidence, features.encoder)
            for query, evidence in zip(queries, _evidence(queries, features), strict=True)
        ]
        targets = np.stack([one.target for one in encoded])
        decided = decide(self.scoring, [one.spec for one in encoded], targets, features.bank)
        compiled = [
            one.compile(self.weights, self.tau, decision.continuity)
            for one, decision in zip(encoded, decided, strict=True)
        ]
        return score_shared(compiled, features.bank, known=features.known)


def _evidence(queries: Sequence[QueryLike], features: Features) -> Sequence[Sequence[Evidence]]:
    """Return the evidence of each query's references."""
    if features.composed:
        return [features.query_evidence(query) for query in queries]
    found = features.references([query.reference for query in queries])
    return [[found[row : row + 1]] for row in range(len(queries))]


class TaprPaper(Tapr):
    """The published score, as a separate row beside today's default."""

    name, label, order = "tapr-paper", "TAPR, the paper's score", 90
    help = "Target, Add, Preserve and Remove, weighed as published."
    ours = "theta and the extractor of local vectors"
    tuned_by = frozenset({"weights", "theta", "tau"})

    def __init__(self, weights: Weights | None = None, tau: float = TAU) -> None:
        super().__init__(weights, tau, PAPER)

    @classmethod
    def make(cls, setting: Setting) -> Self:
        return cls(setting.weights, setting.tau)


ROWS = (Tapr, TaprPaper)
