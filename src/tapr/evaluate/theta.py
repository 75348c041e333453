"""Chooses the factor weights theta: a fixed prior, scaling without labels, a grid on a validation split, or other
datasets' grids. The choice says how it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.evaluate.metrics import Metric
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.ranking import GroundTruth
from tapr.evaluate.terms import QueryTerms
from tapr.query.spec import DEFAULT_WEIGHTS, FACTORS, Weights
from tapr.score.compile import shares

_ADD = _PRESERVE = (0.0, 0.25, 0.5, 1.0, 2.0)
_REMOVE = (0.0, 0.15, 0.3, 0.6, 1.0)
GRID = tuple(Weights(1.0, add, preserve, remove) for add, preserve, remove in product(_ADD, _PRESERVE, _REMOVE))


@dataclass(frozen=True)
class Choice:
    """Factor weights, and how they were chosen."""

    weights: Weights
    how: str

    def to_dict(self) -> dict[str, Any]:
        return {"weights": self.weights.as_dict(), "how": self.how}


FIXED = Choice(DEFAULT_WEIGHTS, "the fixed prior of docs/method.md")


def operators(terms: QueryTerms, tau: float) -> NDArray[np.float64]:
    """(factors + 1, N): what each factor weight multiplies, in the order of FACTORS and with sign; the last row has no
    weight.

    S = theta . phi[:-1] + phi[-1]. The row of an empty factor is zero.
    """
    rows = terms.rows[tau].astype(np.float64)
    phi = np.zeros((len(FACTORS) + 1, rows.shape[1]))
    for part in shares(terms.spec, True, terms.continuity):
        place = len(FACTORS) if part.theta is None else FACTORS.index(part.theta)
        phi[place] += terms.weights([part]) @ rows
    return phi


def label_free(all_operators: Iterable[NDArray[np.float64]], prior: Weights = DEFAULT_WEIGHTS) -> Choice:
    """theta_rho = w_rho sigma_T / sigma_rho. Sigma: standard deviation over the gallery, averaged over queries."""
    totals, counts = np.zeros(len(FACTORS)), np.zeros(len(FACTORS))
    for phi in all_operators:
        spread = phi[: len(FACTORS)].std(axis=1)
        totals += spread
        counts += spread > 0
    if counts[0] == 0:
        raise BadInput("there is no query to scale the weights by")
    sigma = totals / np.maximum(counts, 1)
    values = {
        factor: getattr(prior, factor) * (sigma[0] / sigma[place] if sigma[place] > 0 else 1.0)
        for place, factor in enumerate(FACTORS)
    }
    spreads = ", ".join(f"{factor} {value:.4f}" for factor, value in zip(FACTORS, sigma, strict=True))
    return Choice(Weights(**values), f"label-free scaling of the prior by the operators' spreads ({spreads})")


def check_tunable(protocol: Protocol) -> None:
    if protocol.hidden or not protocol.tunable:
        raise BadInput(
            f"{protocol.dataset} {protocol.split} is a test split, and weights are never chosen on one: tune on a "
            "validation split and give this run --theta from:RUN"
        )


def grid_values(
    queries: Iterable[tuple[int, NDArray[np.float64], GroundTruth]],
    shares: NDArray[np.float64],  # (Q,): each query's weight in the mean
    metric: Metric,
) -> list[float]:
    """The metric in percent at every point of GRID. A query is (index, operators, ground truth)."""
    thetas = np.array([[*theta.as_dict().values(), 1.0] for theta in GRID])  # (G, factors + 1)
    values = np.zeros(len(GRID))
    for place, phi, truth in queries:
        found = truth.ranks_by_weights(thetas, phi)
        values += shares[place] * np.array([metric.value(one) for one in found])
    return [float(value) for value in 100 * values]


def best_of_grid(values: Sequence[float], protocol: Protocol) -> Choice:
    best = int(np.argmax(values))
    how = f"best of {len(GRID)} grid points by {protocol.main} on {protocol.dataset} {protocol.split}"
    return Choice(GRID[best], how)


def leave_one_out(grids: Mapping[str, Sequence[float]], dataset: str) -> Choice:
    """The best grid point on the other datasets' validation splits. This dataset has no influence on it."""
    others = {name: values for name, values in grids.items() if name != dataset}
    if not others:
        raise BadInput(f"leaving {dataset} out leaves no run to choose from: name grid runs of other datasets")
    left = f", {dataset} left out" if dataset in grids else ""
    return Choice(_best_together(others), f"best grid point on {', '.join(sorted(others))} together{left}")


def joint(grids: Mapping[str, Sequence[float]]) -> Choice:
    """One theta for all datasets, like the paper's universal weights."""
    return Choice(_best_together(grids), f"best grid point on {', '.join(sorted(grids))} together")


def _best_together(grids: Mapping[str, Sequence[float]]) -> Weights:
    """The grid point with the best mean. Each grid is divided by its own maximum, so that all count alike."""
    relative = [np.array(values) / max(*values, 1e-9) for values in grids.values()]
    return GRID[int(np.argmax(np.mean(relative, axis=0)))]
