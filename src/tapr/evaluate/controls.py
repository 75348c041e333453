"""The paper's controls. Each variant only changes the weights of a query's terms, so it is one row of a weight matrix.
See docs/method.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from tapr.errors import BadInput
from tapr.evaluate.terms import GLOBAL
from tapr.query.factors import Factor
from tapr.query.spec import ATOM_FACTORS, FACTORS, EditSpec, Weights, WordFactor
from tapr.score.compile import TAU, Continuity, Part, weigh

TAUS = (0.005, 0.01, 0.02, 0.04, 0.08)
SCALES = (0.75, 0.875, 1.0, 1.125, 1.25)
REASSIGNMENTS = 10  # permutations averaged over; all of them when there are no more
NO_ATOMS = "w/o Preserve's atoms"
CONTROLS = ("matched", "factors", "reassign", "continuity", "preserve", "reward", "tau", "theta", "reference")

# A control maps the weighted parts of a query to one or more changed versions. Parts are a compiled query's terms
# without their vectors. All variants of a query share the scores of its terms, so only weights differ. A control also
# receives theta, because the shared read counts the weights of factors that a query leaves empty.
Parts = list[Part]
Change = Callable[[Parts, Weights], Sequence[Parts]]


def _same(theta: Weights) -> Weights:
    return theta


@dataclass(frozen=True)
class Variant:
    """One way to weight the terms. If `change` returns several weightings, their metric values are averaged."""

    name: str
    control: str
    change: Change
    tau: float = TAU
    keep_reference: bool | None = None  # None: as the protocol says
    theta: Callable[[Weights], Weights] = _same  # what is done to the weights before anything is weighed
    keep_atoms: bool = True  # False: as if the spec named nothing to preserve

    def weigh(self, spec: EditSpec, theta: Weights, continuity: Continuity | None) -> Sequence[Parts]:
        theta = self.theta(theta)
        if not self.keep_atoms:
            named = tuple(pair for pair in spec.atom_weights if pair[0] not in spec.preserve)
            spec = replace(spec, preserve=(), atom_weights=named)
        return self.change(weigh(spec, True, theta, continuity), theta)


def full(parts: Parts, theta: Weights) -> Sequence[Parts]:
    """TAPR itself, with the weights of a normal search."""
    return [parts]


def changed(change: Callable[[Part], float]) -> Change:
    """TAPR with every term's weight changed by a rule."""
    return lambda parts, theta: [[replace(part, weight=change(part)) for part in parts]]


def without(factor: Factor) -> Change:
    """Leave one factor out. In the paper's score, reference continuity is part of Preserve and is left out with it."""
    return changed(lambda part: 0.0 if factor in (part.factor, part.theta) else part.weight)


no_continuity = changed(lambda part: 0.0 if part.factor == "continuity" else part.weight)
remove_as_reward = changed(lambda part: abs(part.weight))


def shared_read(parts: Parts, theta: Weights) -> Sequence[Parts]:
    """Weigh every atom positively and equally, without continuity and without negative weights."""
    parts = [part for part in parts if part.factor != "continuity"]
    atoms = sum(part.factor != "target" for part in parts)
    rest = sum(getattr(theta, factor) for factor in ATOM_FACTORS) / max(atoms, 1)
    said = sum(part.weight for part in parts if part.factor == "target")  # of all readings
    share = theta.target / said if said else 0.0
    return [[replace(part, weight=share * part.weight if part.factor == "target" else rest) for part in parts]]


def reassigned(parts: Parts, theta: Weights) -> Sequence[Parts]:
    """Shuffle the atoms among the factors and keep the factors' sizes. At least one atom changes its factor."""
    places = [place for place, part in enumerate(parts) if part.factor in ATOM_FACTORS and part.reads == "local"]
    own = [parts[place].factor for place in places]
    if len(set(own)) < 2:
        return [parts]
    count = len(own)
    every = permutations(range(count)) if count <= 5 else _some_permutations(count)
    kept: dict[tuple[float, ...], Parts] = {}
    for order in every:
        if any(own[place] != own[atom] for place, atom in enumerate(order)):
            moved = list(parts)
            for place, atom in enumerate(order):
                moved[places[atom]] = replace(parts[places[atom]], weight=parts[places[place]].weight)
            kept.setdefault(tuple(part.weight for part in moved), moved)
    distinct = list(kept.values())
    chosen = np.random.default_rng(0).permutation(len(distinct))[:REASSIGNMENTS]
    return [distinct[place] for place in sorted(chosen)]


def scaled(factor: WordFactor, scale: float) -> Callable[[Weights], Weights]:
    return lambda theta: replace(theta, **{factor: getattr(theta, factor) * scale})


FULL = Variant("Full TAPR", "", full)


def variants(controls: Sequence[str], tau: float = TAU) -> list[Variant]:
    """Full TAPR first, then the variants of the named controls. `tau` is the run's own."""
    unknown = sorted(set(controls) - set(CONTROLS))
    if unknown:
        raise BadInput(f"unknown control {unknown[0]!r}: choose {', '.join(CONTROLS)}, extractor, fit or all")
    made: Mapping[str, list[Variant]] = {
        "matched": [
            Variant("global, shared read", "matched", shared_read, GLOBAL),
            Variant("global, factor-wise", "matched", full, GLOBAL),
            Variant("global + local, shared read", "matched", shared_read, tau),
        ],
        "factors": [Variant(f"w/o {factor.capitalize()}", "factors", without(factor), tau) for factor in FACTORS],
        "reassign": [Variant("Factor reassignment (mean)", "reassign", reassigned, tau)],
        "continuity": [Variant("w/o reference continuity", "continuity", no_continuity, tau)],
        "preserve": [Variant(NO_ATOMS, "preserve", full, tau, keep_atoms=False)],
        "reward": [Variant("Remove as reward (+)", "reward", remove_as_reward, tau)],
        "tau": [Variant(f"tau {value:g}", "tau", full, value) for value in TAUS if value != tau],
        "theta": [
            Variant(f"{factor.capitalize()} x{scale:g}", "theta", full, tau, theta=scaled(factor, scale))
            for factor in FACTORS
            for scale in SCALES
            if scale != 1
        ],
        "reference": [
            Variant("reference kept", "reference", full, tau, keep_reference=True),
            Variant("reference removed", "reference", full, tau, keep_reference=False),
        ],
    }
    asked = [variant for control in CONTROLS if control in controls for variant in made[control]]
    return [replace(FULL, tau=tau), *asked]


def _some_permutations(count: int) -> list[tuple[int, ...]]:
    draw = np.random.default_rng(count)
    return [tuple(draw.permutation(count).tolist()) for _ in range(4 * REASSIGNMENTS)]
