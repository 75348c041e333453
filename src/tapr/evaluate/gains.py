"""What factor-wise matching and local vectors each add, and their interaction, computed from the four cells of the
matched control as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping

from tapr.evaluate.metrics import Metric, Outcome
from tapr.evaluate.significance import Difference, difference_of

# (evidence, matching) -> the name of the variant
CELLS = {
    ("global", "shared"): "global, shared read",
    ("global", "factor-wise"): "global, factor-wise",
    ("local", "shared"): "global + local, shared read",
    ("local", "factor-wise"): "Full TAPR",
}
FACTOR_GLOBAL, FACTOR_LOCAL = "factor-wise, on global vectors", "factor-wise, on global + local vectors"
LOCAL_SHARED, LOCAL_FACTOR = "local vectors, under the shared read", "local vectors, under factor-wise matching"
INTERACTION = "interaction"


def gains(outcomes: Mapping[str, Outcome], metric: Metric) -> dict[str, Difference]:
    """Paired differences; empty where one of the four cells is missing."""
    if not set(CELLS.values()) <= outcomes.keys():
        return {}
    value = {cell: 100 * outcomes[name].values(metric) for cell, name in CELLS.items()}
    factor_global = value["global", "factor-wise"] - value["global", "shared"]
    factor_local = value["local", "factor-wise"] - value["local", "shared"]
    deltas = {
        FACTOR_GLOBAL: factor_global,
        FACTOR_LOCAL: factor_local,
        LOCAL_SHARED: value["local", "shared"] - value["global", "shared"],
        LOCAL_FACTOR: value["local", "factor-wise"] - value["global", "factor-wise"],
        INTERACTION: factor_local - factor_global,
    }
    full = outcomes[CELLS["local", "factor-wise"]]
    return {name: difference_of(delta, full) for name, delta in deltas.items()}
