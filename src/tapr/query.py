"""From words and a reference picture to the one form every kernel computes.

    S(image) = target_weight * (target . v0) + sum_i weights[i] * l_tau(probes[i]; V)

with l_tau(u; V) = sum_j softmax_j(u . v_j / tau) (u . v_j). METHOD section 4 derives it from the four operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tapr.encoders.base import Encoder, Evidence, Float32
from tapr.errors import BadInput
from tapr.spec import ATOM_FACTORS, DEFAULT_WEIGHTS, EditSpec, Factor, Weights

TAU = 0.02
REFERENCE = "(reference)"  # the text of the continuity term, which comes from a picture and not from a phrase


@dataclass(frozen=True)
class Term:
    """One thing the score is made of, for explanations: an atom, or reference continuity with its M probes."""

    factor: Factor
    text: str
    start: int  # its probes are probes[start:stop]; the target has none
    stop: int


@dataclass(frozen=True, eq=False)
class CompiledQuery:
    """A whole query: one target vector, the probes, one signed weight a probe. Weights' magnitudes sum to 1."""

    target: Float32  # (d,)
    target_weight: float
    probes: Float32  # (n, d)
    weights: Float32  # (n,), negative for Remove
    terms: tuple[Term, ...]
    tau: float = TAU

    @property
    def dim(self) -> int:
        return len(self.target)

    def keep(self, wanted: Callable[[Term], bool]) -> CompiledQuery:
        """The same query with only the terms wanted; weights are left as they are."""
        terms = [term for term in self.terms if wanted(term)]
        rows = [row for term in terms for row in range(term.start, term.stop)]
        start, moved = 0, []
        for term in terms:
            length = term.stop - term.start
            moved.append(replace(term, start=start, stop=start + length))
            start += length
        has_target = any(term.factor == "target" for term in terms)
        return replace(
            self,
            target_weight=self.target_weight if has_target else 0.0,
            probes=self.probes[rows],
            weights=self.weights[rows],
            terms=tuple(moved),
        )


def compile_query(
    spec: EditSpec,
    reference: Evidence | None,
    encoder: Encoder,
    weights: Weights | None = None,
    tau: float = TAU,
) -> CompiledQuery:
    """Encode the spec and weigh its parts; `weights` goes before the spec's own, those before the defaults.

    `reference` holds one picture; without one there is no continuity and an empty Preserve is inactive too.
    """
    if not (np.isfinite(tau) and tau > 0):
        raise BadInput(f"tau must be a number above 0, not {tau!r}")
    theta = active_weights(spec, reference is not None, weights or spec.weights or DEFAULT_WEIGHTS)
    atoms = [atom for factor in ATOM_FACTORS for atom in spec.atoms(factor)]
    vectors = dict(zip(atoms, encoder.encode_atoms(atoms), strict=True)) if atoms else {}

    probes: list[Float32] = []  # blocks of (n, d)
    signed: list[Float32] = []  # blocks of (n,)
    terms = [Term("target", spec.target, 0, 0)]

    def add_term(factor: Factor, text: str, block: Float32, weight: float) -> None:
        start = terms[-1].stop
        terms.append(Term(factor, text, start, start + len(block)))
        probes.append(block)
        signed.append(np.full(len(block), weight / len(block), np.float32))

    def add_atoms(factor: Factor, weight: float) -> None:
        shares = _shares(spec, factor)
        for atom, share in shares.items():
            add_term(factor, atom, vectors[atom][None], weight * share)

    add_atoms("add", theta["add"])
    if reference is None:
        add_atoms("preserve", theta["preserve"])
    else:
        half = theta["preserve"] / 2 if spec.preserve else 0.0
        add_atoms("preserve", half)
        add_term("preserve", REFERENCE, reference.local_vectors[0], theta["preserve"] - half)
    add_atoms("remove", -theta["remove"])

    dim = encoder.card.dim
    return CompiledQuery(
        target=encoder.encode_texts([spec.target])[0],
        target_weight=theta["target"],
        probes=np.concatenate(probes) if probes else np.zeros((0, dim), np.float32),
        weights=np.concatenate(signed) if signed else np.zeros(0, np.float32),
        terms=tuple(terms),
        tau=float(tau),
    )


def active_weights(spec: EditSpec, has_reference: bool, weights: Weights) -> dict[Factor, float]:
    """theta with inactive factors at 0, the rest summing to 1."""
    theta = weights.as_dict()
    for factor in ("add", "remove"):
        if not spec.atoms(factor):
            theta[factor] = 0.0
    if not spec.preserve and not has_reference:
        theta["preserve"] = 0.0
    total = sum(theta.values())
    if total <= 0:
        raise BadInput("every factor that this query uses has weight 0: give Target or another used factor a weight")
    return {factor: value / total for factor, value in theta.items()}


def _shares(spec: EditSpec, factor: Factor) -> dict[str, float]:
    """Each atom's part of its factor: equal, unless atoms carry weights."""
    raw = {atom: spec.weight_of(atom) for atom in spec.atoms(factor)}
    total = sum(raw.values())
    if raw and total <= 0:
        raise BadInput(f"every atom of {factor} has weight 0: set the factor's own weight to 0 instead")
    return {atom: weight / total for atom, weight in raw.items()}
