"""The weights of every variant as rows to multiply a query's terms with. Computed once per query shape.

Weights depend on the number of atoms per factor, on the atoms' own weights and on the reference weight, but not on the
words. Thousands of queries have few shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tapr.evaluate.controls import Variant
from tapr.evaluate.terms import QueryTerms
from tapr.query.spec import ATOM_FACTORS, Weights
from tapr.types import Float32


@dataclass(frozen=True, eq=False)
class VariantGroup:
    """Variants with the same tau and reference flag: one matrix product computes all of them."""

    tau: float
    keep_reference: bool | None
    rows: Float32  # (R, terms)
    counts: tuple[tuple[int, int], ...]  # (index of the variant, number of its rows), in order


class VariantWeights:
    def __init__(self, asked: Sequence[Variant], theta: Weights) -> None:
        self._asked, self._theta = asked, theta
        self._known: dict[Hashable, list[VariantGroup]] = {}

    def __call__(self, terms: QueryTerms) -> list[VariantGroup]:
        spec = terms.spec
        atoms = tuple(tuple(spec.weight_of(atom) for atom in spec.atoms(factor)) for factor in ATOM_FACTORS)
        said = tuple(spec.sentences.values())
        shape = atoms, said, spec.weights, terms.continuity, len(terms.keys)
        if shape not in self._known:
            self._known[shape] = self._weighed(terms)
        return self._known[shape]

    def _weighed(self, terms: QueryTerms) -> list[VariantGroup]:
        rows = [
            [terms.weights(parts) for parts in variant.weigh(terms.spec, self._theta, terms.continuity)]
            for variant in self._asked
        ]
        made = []
        for tau, keep in dict.fromkeys((variant.tau, variant.keep_reference) for variant in self._asked):
            members = [n for n, one in enumerate(self._asked) if (one.tau, one.keep_reference) == (tau, keep)]
            stacked = np.array([row for n in members for row in rows[n]], np.float32)
            made.append(VariantGroup(tau, keep, stacked, tuple((n, len(rows[n])) for n in members)))
        return made
