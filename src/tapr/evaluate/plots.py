"""Figures of sweeps over tau and factor weights, for one run or for all datasets with the paper's values.

Figures are saved as PNG, SVG and PDF. The same figure always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate import paper
from tapr.evaluate.controls import SCALES
from tapr.evaluate.run_files import StoredRun
from tapr.query.factors import BY_NAME
from tapr.query.spec import FACTORS
from tapr.utils.extras import install_hint

_NO_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
_STYLE = {
    "svg.hashsalt": "tapr",  # without a fixed salt, every file has different ids inside
    "pdf.fonttype": 42,  # text stays text, as journals ask
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as drawing
    except ImportError:
        raise BadInput(f"plots need matplotlib: {install_hint('eval')}, or leave them out with --no-plots") from None
    drawing.rcParams.update(_STYLE)
    return drawing


def save(figure: Any, base: Path) -> list[Path]:
    """Save under `base` (without a suffix) and close the figure."""
    base.parent.mkdir(parents=True, exist_ok=True)
    paths = [base.with_name(f"{base.name}.{suffix}") for suffix in _NO_DATE]
    for path in paths:
        figure.savefig(path, dpi=160, metadata=_NO_DATE[path.suffix[1:]])
    pyplot().close(figure)
    return paths


FULL = "Full TAPR"
SHORT = {"CIRCO": "circo", "CIRR": "cirr", "FashionIQ": "fiq"}  # keys of the paper's data
_COLOURS = {"CIRCO": "#1f6fb4", "CIRR": "#c2571a", "FashionIQ": "#2a8a4a"}


def tau_points(run: StoredRun) -> list[tuple[float, Mapping[str, Any]]]:
    """(tau, row), ascending; empty if the sweep was not run."""
    controls = run.metrics["controls"]
    swept = [(float(name.split()[1]), row) for name, row in controls.items() if row["control"] == "tau"]
    return sorted([(run.config["tau"], controls[FULL]), *swept], key=lambda point: point[0]) if swept else []


def theta_points(run: StoredRun, factor: str) -> list[tuple[float, float]]:
    """(scale, main metric), ascending."""
    controls, main = run.metrics["controls"], str(run.main)
    points = []
    for name, row in controls.items():
        who, _, scale = name.partition(" x")
        if row["control"] == "theta" and who.lower() == factor:
            points.append((float(scale), float(row[main])))
    return sorted([(1.0, float(controls[FULL][main])), *points]) if points else []


def draw_tau(runs: Sequence[StoredRun]) -> Any | None:
    """Differences to each dataset's own value at the default tau. Hollow marks are the paper's drops."""
    swept = [run for run in runs if tau_points(run)]
    if not swept:
        return None
    published = paper.results()["temperature_vitl_val"]
    figure, axes = pyplot().subplots(figsize=(5.2, 3.6), layout="constrained")
    taus: set[float] = set()
    for run in swept:
        name, main = run.dataset, str(run.main)
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
    """One panel per dataset. The grey band is the paper's largest drop, the dotted line its best neighbour."""
    swept = [run for run in runs if any(theta_points(run, factor) for factor in FACTORS)]
    if not swept:
        return None
    published = paper.results()["weight_sensitivity_vitl_val"]
    figure, panels = pyplot().subplots(
        1, len(swept), figsize=(2.6 * len(swept) + 0.6, 3.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, run in zip(panels[0], swept, strict=True):
        name, main = run.dataset, str(run.main)
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


def write_plots(run: StoredRun) -> list[Path]:
    """Write the plots that the run has data for."""
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
    protocol = run.protocol
    axes.set_ylabel(f"{run.main} (%)")
    axes.set_title(f"{protocol['dataset']} {protocol['split']}, {run.encoder}")
    return save(figure, run.folder / name)
