"""tau and the factors' weights on all datasets in one figure, with what the paper says of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tapr.evaluate import paper
from tapr.evaluate.drawing import pyplot
from tapr.evaluate.run_files import StoredRun
from tapr.query.factors import BY_NAME
from tapr.query.spec import FACTORS

FULL = "Full TAPR"
SHORT = {"CIRCO": "circo", "CIRR": "cirr", "FashionIQ": "fiq"}  # as the paper's data call them
_COLOURS = {"CIRCO": "#1f6fb4", "CIRR": "#c2571a", "FashionIQ": "#2a8a4a"}


def tau_points(run: StoredRun) -> list[tuple[float, Mapping[str, Any]]]:
    """(tau, row), rising; nothing where the sweep was not run."""
    controls = run.metrics["controls"]
    swept = [(float(name.split()[1]), row) for name, row in controls.items() if row["control"] == "tau"]
    return sorted([(run.config["tau"], controls[FULL]), *swept], key=lambda point: point[0]) if swept else []


def theta_points(run: StoredRun, factor: str) -> list[tuple[float, float]]:
    """(scale, main metric), rising."""
    controls, main = run.metrics["controls"], str(run.main)
    points = []
    for name, row in controls.items():
        who, _, scale = name.partition(" x")
        if row["control"] == "theta" and who.lower() == factor:
            points.append((float(scale), float(row[main])))
    return sorted([(1.0, float(controls[FULL][main])), *points]) if points else []


def draw_tau(runs: Sequence[StoredRun]) -> Any | None:
    """Points below or above each dataset's own anchor; the paper's drops are hollow marks of the same colour."""
    swept = [run for run in runs if tau_points(run)]
    if not swept:
        return None
    published = paper.results()["temperature_vitl_val"]
    figure, axes = pyplot().subplots(figsize=(5.2, 3.6), layout="constrained")
    taus: set[float] = set()
    for run in swept:
        name, main = run.config["protocol"]["dataset"], str(run.main)
        points = tau_points(run)
        anchor = float(run.metrics["controls"][FULL][main])
        colour = _COLOURS.get(name, "black")
        x = [tau for tau, _ in points]
        taus.update(x)
        axes.plot(x, [row[main] - anchor for _, row in points], "o-", color=colour, label=f"{name} {main}", ms=4)
        short = SHORT.get(name)
        if short is not None:
            drops = [(tau, -published[f"drop_at_{tau:g}"][short]) for tau in (0.01, 0.04)]
            axes.plot(*zip(*drops, strict=True), "D", mfc="none", color=colour, ms=6, label=f"{name}, the paper")
    axes.axhline(0, color="0.7", lw=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_xticks(sorted(taus), [f"{tau:g}" for tau in sorted(taus)])
    axes.minorticks_off()
    axes.set_xlabel("τ")
    axes.set_ylabel(f"points, against τ = {swept[0].config['tau']:g}")
    axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return figure


def draw_theta(runs: Sequence[StoredRun]) -> Any | None:
    """One panel per dataset; the grey band is the paper's largest drop, the dotted line its best neighbour."""
    swept = [run for run in runs if any(theta_points(run, factor) for factor in FACTORS)]
    if not swept:
        return None
    published = paper.results()["weight_sensitivity_vitl_val"]
    figure, panels = pyplot().subplots(
        1, len(swept), figsize=(2.6 * len(swept) + 0.6, 3.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, run in zip(panels[0], swept, strict=True):
        name, main = run.config["protocol"]["dataset"], str(run.main)
        anchor = float(run.metrics["controls"][FULL][main])
        short = SHORT.get(name)
        if short is not None:
            drop, best = published["max_drop"][short], published["best_neighbour"][short]
            axes.axhspan(-drop, 0, color="0.9", lw=0, zorder=0, label="the paper's largest drop")
            axes.axhline(best, color="0.5", lw=0.9, ls=":", label="the paper's best neighbour")
        for factor in FACTORS:
            points = theta_points(run, factor)
            if points:
                colour = tuple(value / 255 for value in BY_NAME[factor].colour)
                x, y = zip(*points, strict=True)
                axes.plot(x, [value - anchor for value in y], "o-", color=colour, label=factor.capitalize(), ms=3.5)
        axes.set_xticks([0.75, 1.0, 1.25], ["0.75", "1", "1.25"])
        axes.set_title(f"{name} {main}")
        axes.set_xlabel("θ of a factor, times its own")
    panels[0][0].set_ylabel("points, against ×1")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, ncols=3, loc="outside lower center")
    return figure
