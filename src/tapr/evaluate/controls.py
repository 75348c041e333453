"""The paper's controls as weights on a query's terms. Each variant is one row of a matrix; METHOD section 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.evaluate.terms import GLOBAL, QueryTerms
from tapr.query import TAU, active_weights
from tapr.spec import ATOM_FACTORS, FACTORS, EditSpec, Factor, Weights

TAUS = (0.005, 0.01, 0.02, 0.04, 0.08)
SCALES = (0.75, 0.875, 1.0, 1.125, 1.25)
REASSIGNMENTS = 10  # permutations averaged over; all of them when there are no more
CONTROLS = ("matched", "factors", "reassign", "continuity", "reward", "tau", "theta", "reference")

Row = NDArray[np.float64]  # (1 + atoms + 1,): target, atoms, continuity


@dataclass(frozen=True)
class Variant:
    """One way to weigh the terms. `weigh` may give several rows; the metric's mean over them counts."""

    name: str
    control: str
    weigh: Callable[[QueryTerms, Weights], Sequence[Row]]
    tau: float = TAU
    keep_reference: bool | None = None  # None: as the protocol says


def weigh(terms: QueryTerms, theta: Weights) -> Row:
    """TAPR itself, as query.compile_query weighs it."""
    spec = terms.spec
    active = active_weights(spec, True, theta)
    row = [active["target"]]
    for factor in ATOM_FACTORS:
        total = active[factor] / 2 if factor == "preserve" else active[factor]
        sign = -1 if factor == "remove" else 1
        shares = _shares(spec, factor)
        row += [sign * total * share for share in shares]
    row.append(active["preserve"] / 2 if spec.preserve else active["preserve"])
    return np.array(row)


def shared_read(terms: QueryTerms, theta: Weights) -> Row:
    """All atoms in one unsigned read, no continuity, no minus sign."""
    count = len(terms.factors())
    rest = theta.add + theta.preserve + theta.remove
    return np.array([theta.target, *([rest / count] * count if count else []), 0.0])


def without(factor: Factor) -> Callable[[QueryTerms, Weights], Sequence[Row]]:
    def rows(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
        row = weigh(terms, theta)
        if factor == "target":
            row[0] = 0
        row[1:-1][[own == factor for own in terms.factors()]] = 0
        if factor == "preserve":
            row[-1] = 0
        return [row]

    return rows


def reassigned(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
    """The same atoms among the operators' fixed places; arrangements that leave every atom in its factor are none."""
    own = terms.factors()
    row = weigh(terms, theta)
    count = len(own)
    if len(set(own)) < 2:
        return [row]
    every = permutations(range(count)) if count <= 5 else _some_permutations(count)
    kept: dict[tuple[float, ...], Row] = {}
    for order in every:
        if any(own[place] != own[atom] for place, atom in enumerate(order)):
            moved = row.copy()
            moved[1:-1][list(order)] = row[1:-1]
            kept.setdefault(tuple(moved), moved)
    distinct = list(kept.values())
    chosen = np.random.default_rng(0).permutation(len(distinct))[:REASSIGNMENTS]
    return [distinct[place] for place in sorted(chosen)]


def no_continuity(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
    row = weigh(terms, theta)
    row[-1] = 0
    return [row]


def remove_as_reward(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
    row = weigh(terms, theta)
    row[1:-1] = np.abs(row[1:-1])
    return [row]


def scaled(factor: Factor, scale: float) -> Callable[[QueryTerms, Weights], Sequence[Row]]:
    def rows(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
        return [weigh(terms, replace(theta, **{factor: getattr(theta, factor) * scale}))]

    return rows


def _full(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
    return [weigh(terms, theta)]


def _shared(terms: QueryTerms, theta: Weights) -> Sequence[Row]:
    return [shared_read(terms, theta)]


FULL = Variant("Full TAPR", "", _full)


def variants(controls: Sequence[str], tau: float = TAU) -> list[Variant]:
    """Full TAPR and what the named controls compare it with; `tau` is that of the run."""
    unknown = sorted(set(controls) - set(CONTROLS))
    if unknown:
        raise BadInput(f"unknown control {unknown[0]!r}: choose {', '.join(CONTROLS)}, extractor or all")
    full = replace(FULL, tau=tau)
    made: Mapping[str, list[Variant]] = {
        "matched": [
            Variant("global, shared read", "matched", _shared, GLOBAL),
            Variant("global, factor-wise", "matched", _full, GLOBAL),
            Variant("global + local, shared read", "matched", _shared, tau),
        ],
        "factors": [Variant(f"w/o {factor.capitalize()}", "factors", without(factor), tau) for factor in FACTORS],
        "reassign": [Variant("Factor reassignment (mean)", "reassign", reassigned, tau)],
        "continuity": [Variant("w/o reference continuity", "continuity", no_continuity, tau)],
        "reward": [Variant("Remove as reward (+)", "reward", remove_as_reward, tau)],
        "tau": [Variant(f"tau {value:g}", "tau", _full, value) for value in TAUS if value != tau],
        "theta": [
            Variant(f"{factor.capitalize()} x{scale:g}", "theta", scaled(factor, scale), tau)
            for factor in FACTORS
            for scale in SCALES
            if scale != 1
        ],
        "reference": [
            Variant("reference kept", "reference", _full, tau, keep_reference=True),
            Variant("reference removed", "reference", _full, tau, keep_reference=False),
        ],
    }
    return [full, *(variant for control in CONTROLS if control in controls for variant in made[control])]


def _shares(spec: EditSpec, factor: Factor) -> list[float]:
    raw = [spec.weight_of(atom) for atom in spec.atoms(factor)]
    total = sum(raw)
    return [weight / total for weight in raw]


def _some_permutations(count: int) -> list[tuple[int, ...]]:
    draw = np.random.default_rng(count)
    return [tuple(draw.permutation(count).tolist()) for _ in range(4 * REASSIGNMENTS)]
