"""Diagnoses of a benchmark and a method by its results: queries that one modality solves, and gains.

`solved_alone` counts the queries that the picture alone or the words alone solve. If these are most, the benchmark
says little about composing the two. `gains` computes what factor-wise matching and local vectors each add, and their
interaction, from the four cells of the matched control as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapr.evaluate.metrics import Metric, Outcome
from tapr.evaluate.significance import Difference, difference_of

SUFFICIENT_PERCENT = 50  # if one modality solves this many percent of the queries, a warning is added


def solved_alone(image: Outcome, edit: Outcome, main: Metric) -> list[dict[str, float]]:
    """Percent of queries with a right answer among the first k, for k = 1 and the main metric's: JSON-ready."""
    rows: list[dict[str, float]] = []
    for k in sorted({1, main.k or 10}):  # a metric of the whole ranking has no k
        found = Metric("Hit", k)
        by_image, by_edit = image.values(found) > 0, edit.values(found) > 0
        shares = {"image": by_image, "edit": by_edit, "either": by_image | by_edit}
        rows.append({"k": k} | {name: 100 * float(solved.mean()) for name, solved in shares.items()})
    return rows


def solved_alone_sentences(rows: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """The result as sentences for a table; empty if it was not measured."""
    if not rows:
        return ()
    said = "; ".join(
        f"in the top {row['k']} image only {row['image']:.1f} %, edit only {row['edit']:.1f} %, "
        f"either {row['either']:.1f} % of the queries"
        for row in rows
    )
    solved = [f"Solved by one modality alone: {said}."]
    if rows[-1]["either"] >= SUFFICIENT_PERCENT:
        solved.append("One modality suffices for most of these queries: they say little about composing the two.")
    return tuple(solved)


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
