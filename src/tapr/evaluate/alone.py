"""What one modality alone solves: where the picture or the words suffice, a benchmark says little about composing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapr.evaluate.metrics import Metric, Outcome

SUFFICIENT_PERCENT = 50  # percent of the queries from which one modality is said to suffice


def solved_alone(image: Outcome, edit: Outcome, main: Metric) -> list[dict[str, float]]:
    """Percent of queries with a right answer among the first k, for k = 1 and the main metric's: JSON-ready."""
    rows: list[dict[str, float]] = []
    for k in sorted({1, main.k or 10}):  # a metric of the whole ranking has no k
        found = Metric("Hit", k)
        by_image, by_edit = image.values(found) > 0, edit.values(found) > 0
        shares = {"image": by_image, "edit": by_edit, "either": by_image | by_edit}
        rows.append({"k": k} | {name: 100 * float(solved.mean()) for name, solved in shares.items()})
    return rows


def sentences(rows: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """Nothing where it was not measured."""
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
