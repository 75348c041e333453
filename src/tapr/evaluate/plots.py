"""Plots of one run's sweeps: tau, and each factor's weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tapr.evaluate.controls import SCALES
from tapr.evaluate.drawing import pyplot, save
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.sweeps import tau_points, theta_points
from tapr.query.factors import BY_NAME
from tapr.query.spec import FACTORS


def write_plots(run: StoredRun) -> list[Path]:
    """Those for which the run has controls; none when it has neither sweep."""
    controls = run.metrics["controls"]
    made: list[Path] = []
    if any(row["control"] == "tau" for row in controls.values()):
        made += _plot(run, "tau", _tau)
    if any(row["control"] == "theta" for row in controls.values()):
        made += _plot(run, "theta", _theta)
    return made


def _tau(axes: Any, run: StoredRun) -> None:
    main, points = str(run.main), tau_points(run)
    x = [tau for tau, _ in points]
    axes.plot(x, [row[main] for _, row in points], marker="o", color="black")
    low, high = ([row["interval"][side] for _, row in points] for side in (0, 1))
    axes.fill_between(x, low, high, color="black", alpha=0.12, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{tau:g}" for tau in x])
    axes.minorticks_off()
    axes.set_xlabel("tau")


def _theta(axes: Any, run: StoredRun) -> None:
    for factor in FACTORS:
        points = theta_points(run, factor)
        if points:
            colour = tuple(value / 255 for value in BY_NAME[factor].colour)
            axes.plot(*zip(*points, strict=True), marker="o", label=factor.capitalize(), color=colour)
    axes.set_xticks(SCALES, [f"{scale:g}" for scale in SCALES])
    axes.set_xlabel("factor's weight, times its own")
    axes.legend()


def _plot(run: StoredRun, name: str, draw: Callable[[Any, StoredRun], None]) -> list[Path]:
    figure, axes = pyplot().subplots(figsize=(4.8, 3.4), layout="constrained")
    draw(axes, run)
    protocol = run.config["protocol"]
    axes.set_ylabel(f"{run.main} (%)")
    axes.set_title(f"{protocol['dataset']} {protocol['split']}, {run.encoder}")
    return save(figure, run.folder / name)
