"""Writes a page with the queries that TAPR answers better, and worse, than another method, with explanations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tapr.evaluate.datasets.base import Query
from tapr.evaluate.metrics import Metric, Outcome
from tapr.evaluate.run import Experiment, MethodResult
from tapr.explain.report import Panel, write_report
from tapr.gallery import Gallery
from tapr.options import RankOptions
from tapr.query.spec import Weights
from tapr.search.searcher import search

SHOWN = 6  # queries each of wins and losses, and pictures per query


def write_page(
    path: Path,
    experiment: Experiment,
    gallery: Gallery,
    tapr: MethodResult,
    other: MethodResult,
    weights: Weights,
    options: RankOptions,
    about: Sequence[str] = (),
) -> Path:
    """The queries with the largest difference in the main metric, wins first. `about` is shown below the title."""
    assert tapr.outcome is not None
    assert other.outcome is not None
    metric = experiment.dataset.protocol.main
    queries = experiment.dataset.queries
    # only queries that TAPR itself ranked can be explained
    own = [place for place, query in enumerate(queries) if query.id not in tapr.without]
    wins, losses = largest_differences(tapr.outcome, other.outcome, metric, own)
    panels = []
    for title, places in (("Win", wins), ("Loss", losses)):
        for place in places:
            ranks = [min(one.outcome.ranks[place][0].right) for one in (tapr, other) if one.outcome is not None]
            note = f"{title}: the best right answer stands at rank {ranks[0]:.0f}, at {ranks[1]:.0f} with {other.label}"
            panels.append(_panel(queries[place], note, experiment, gallery, weights, options))
    protocol = experiment.dataset.protocol
    return write_report(path, panels, f"{protocol.dataset} {protocol.split}: TAPR against {other.label}", about)


def largest_differences(
    first: Outcome, second: Outcome, metric: Metric, among: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Indices of the queries that the first method wins most clearly, and of those it loses most clearly."""
    deltas = first.values(metric) - second.values(metric)
    order = np.array(among, np.int64)[np.argsort(-deltas[list(among)], kind="stable")]
    wins = [int(place) for place in order[:SHOWN] if deltas[place] > 0]
    losses = [int(place) for place in order[::-1][:SHOWN] if deltas[place] < 0]
    return wins, losses


def best_other_method(results: Sequence[MethodResult], metric: Metric) -> MethodResult | None:
    """The best method other than TAPR (with either score)."""
    others = [one for one in results if not one.name.startswith("tapr") and one.outcome is not None]
    return max(others, key=lambda one: one.outcome.mean(metric) if one.outcome else 0, default=None)


def _panel(
    query: Query, note: str, experiment: Experiment, gallery: Gallery, weights: Weights, options: RankOptions
) -> Panel:
    ranking = search(
        gallery,
        experiment.dataset.pictures[query.reference],
        spec=experiment.records.spec(query.id),
        k=SHOWN,
        weights=weights,
        exclude_reference=not experiment.dataset.protocol.keep_reference,
        **options.given,
    )
    ids = {hit.id for hit in ranking.hits}
    answer = next((name for name in query.right if name in ids), query.right[0])
    return Panel(ranking, query.edit, answer, note)
