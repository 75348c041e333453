"""Draws the paper's figures from runs of tapr eval.

    python figures.py sweeps RUN... --out FOLDER                     # Figures 5 and 6: tau and the factor weights
    python figures.py query RUN QUERY --methods cotmr,cirevl,tapr    # Figures 1 and 3: what methods rank first
    python figures.py query RUN QUERY --cells --picture NAME         # Figure 4: a rank in the matched control

Sweeps need runs with --controls tau --controls theta, cells one with --controls matched.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Query
from tapr.evaluate.diagnostics import CELLS
from tapr.evaluate.published import published
from tapr.evaluate.ranking import TOP
from tapr.evaluate.run_files import SPECS, StoredRun, read_lines, read_ranking
from tapr.evaluate.trec import dataset_of
from tapr.images.decode import read_bytes
from tapr.query.factors import BY_NAME
from tapr.query.open_reference import shown
from tapr.query.spec import ATOM_FACTORS, FACTORS, EditSpec

_RIGHT, _WRONG, _PLAIN = "#2a8a4a", "#b3261e", "0.6"
_SIDE = 224  # pixels of a picture
FULL = "Full TAPR"
_COLOURS = {"CIRCO": "#1f6fb4", "CIRR": "#c2571a", "FashionIQ": "#2a8a4a"}
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
    """Load matplotlib with the style of the paper's figures."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as drawing
    except ImportError:
        raise SystemExit("figures need matplotlib: pip install matplotlib") from None
    drawing.rcParams.update(_STYLE)
    return drawing


def save(figure: Any, base: Path) -> list[Path]:
    """Save a figure as PNG, SVG and PDF under `base`, which has no suffix; the same figure gives the same bytes."""
    base.parent.mkdir(parents=True, exist_ok=True)
    paths = [base.with_name(f"{base.name}.{suffix}") for suffix in _NO_DATE]
    for path in paths:
        figure.savefig(path, dpi=160, metadata=_NO_DATE[path.suffix[1:]])
    pyplot().close(figure)
    return paths


def tau_points(run: StoredRun) -> list[tuple[float, Mapping[str, Any]]]:
    """Return (tau, row), ascending; empty if the sweep was not run."""
    controls = run.metrics["controls"]
    swept = [(float(name.split()[1]), row) for name, row in controls.items() if row["control"] == "tau"]
    return sorted([(run.config["tau"], controls[FULL]), *swept], key=lambda point: point[0]) if swept else []


def theta_points(run: StoredRun, factor: str) -> list[tuple[float, float]]:
    """Return (scale, main metric), ascending."""
    controls, main = run.metrics["controls"], str(run.main)
    points = []
    for name, row in controls.items():
        who, _, scale = name.partition(" x")
        if row["control"] == "theta" and who.lower() == factor:
            points.append((float(scale), float(row[main])))
    return sorted([(1.0, float(controls[FULL][main])), *points]) if points else []


def draw_tau(runs: Sequence[StoredRun]) -> Any | None:
    """Draw differences to each dataset's value at the default tau. Hollow marks are the paper's drops."""
    swept = [run for run in runs if tau_points(run)]
    if not swept:
        return None
    theirs = published()["tau"]
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
        if name in _COLOURS:
            drops = [(tau, -theirs[f"drop_at_{tau:g}"][name]) for tau in (0.01, 0.04)]
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
    """Draw a panel per dataset. The grey band is the paper's largest drop, the dotted line its best neighbour."""
    swept = [run for run in runs if any(theta_points(run, factor) for factor in FACTORS)]
    if not swept:
        return None
    theirs = published()["theta"]
    figure, panels = pyplot().subplots(
        1, len(swept), figsize=(2.6 * len(swept) + 0.6, 3.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, run in zip(panels[0], swept, strict=True):
        name, main = run.dataset, str(run.main)
        anchor = float(run.metrics["controls"][FULL][main])
        if name in _COLOURS:
            drop, best = theirs["max_drop"][name], theirs["best_neighbour"][name]
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


def ranges(run: StoredRun) -> str:
    """Return how far the main metric moves over tau, and its largest drop under a scaled weight: ours and theirs."""
    name, main = run.dataset, str(run.main)
    taus = [float(row[main]) for _, row in tau_points(run)]
    scaled = [value for factor in FACTORS for _, value in theta_points(run, factor)]
    spread = f"{max(taus) - min(taus):.2f}" if taus else "–"
    drop = f"{float(run.metrics['controls'][FULL][main]) - min(scaled):.2f}" if scaled else "–"
    paper = published()["tau"]["range"].get(name, "–"), published()["theta"]["max_drop"].get(name, "–")
    return f"{name} {main}: range over tau {spread} (the paper {paper[0]}), largest drop {drop} (the paper {paper[1]})"


@dataclass(frozen=True)
class Example:
    """A query of a stored run with all that is needed to draw it."""

    run: StoredRun
    query: Query
    pictures: Dataset
    spec: EditSpec | None

    @classmethod
    def of(cls, run: StoredRun, query_id: str, data: Path | None = None) -> Example:
        """Read a query; `data` is the benchmark's folder, where it is elsewhere now than when the run was made."""
        dataset = dataset_of(run, data)
        query = next((query for query in dataset.queries if query.id == query_id), None)
        if query is None:
            some = ", ".join(query.id for query in dataset.queries[:5])
            raise BadInput(f"the run {str(run.folder)!r} has no query {query_id!r}: its queries are {some}, ...")
        rows = read_lines(run.folder / SPECS) or []
        spec = next((EditSpec.from_dict(row["payload"]) for row in rows if row["id"] == query_id), None)
        return cls(run, query, dataset, spec)

    def picture(self, name: str) -> Any:
        """Return the whole picture inside a white square, (side, side, 3)."""
        image = ImageOps.contain(shown(read_bytes(self.pictures.pictures[name])), (_SIDE, _SIDE))
        square = Image.new("RGB", (_SIDE, _SIDE), "white")
        square.paste(image, ((_SIDE - image.width) // 2, (_SIDE - image.height) // 2))
        return np.asarray(square)


def draw_methods(example: Example, methods: Sequence[str], count: int = 5) -> Any:
    """Draw the reference, then a row per method with its best pictures, framed green if right and red if wrong."""
    rankings = [_ranking(example, name) for name in methods]
    # the reference stands left of the first row: where that is TAPR's, its atoms have a column of their own
    beside = int(methods[0] == "tapr" and example.spec is not None)
    figure, panels = pyplot().subplots(
        len(methods),
        count + 1 + beside,
        figsize=(1.35 * (count + 1 + beside), 1.45 * len(methods) + 0.6),
        squeeze=False,
        layout="constrained",
    )
    for row, (name, (label, top, rank)) in enumerate(zip(methods, rankings, strict=True)):
        for axes in panels[row][: 1 + beside]:
            _blank(axes)
        if row == 0:
            _show(panels[0][0], example.picture(example.query.reference), "reference")
        for place in range(count):
            axes = panels[row][place + 1 + beside]
            if place >= len(top):
                _blank(axes)
                continue
            right = top[place] in example.query.right if example.query.right else None
            colour = _PLAIN if right is None else _RIGHT if right else _WRONG
            sign = "" if right is None else " ✓" if right else " ✗"
            _show(axes, example.picture(top[place]), f"{place + 1}{sign}", colour)
        best = "" if rank is None else f"\nbest right answer: {rank}"
        panels[row][1 + beside].set_ylabel(f"{label}{best}", fontsize=7.5)
        if name == "tapr" and example.spec is not None:
            _atoms(panels[row][1 if row == 0 else 0], example.spec)
    _title(figure, example)
    return figure


def draw_cells(example: Example, picture: str | None = None) -> Any:
    """Draw the rank of a right answer in the four cells of the matched control: evidence down, matching across."""
    name = picture or (example.query.right[0] if example.query.right else "")
    if name not in example.query.right:
        answers = ", ".join(example.query.right) or "hidden"
        raise BadInput(f"{name!r} is no right answer of query {example.query.id}: its answers are {answers}")
    place = example.query.right.index(name)
    ranks = cell_ranks(example.run, example.query.id, place)
    figure = pyplot().figure(figsize=(6.4, 2.5), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 1, 2.1))
    _show(figure.add_subplot(grid[0]), example.picture(example.query.reference), "reference")
    _show(figure.add_subplot(grid[1]), example.picture(name), name, _RIGHT)
    axes = figure.add_subplot(grid[2])
    axes.set_xlim(0, 2)
    axes.set_ylim(2, 0)
    readings, evidences = ("shared", "factor-wise"), ("global", "local")
    for down, evidence in enumerate(evidences):
        for across, reading in enumerate(readings):
            rank = ranks[evidence, reading]
            text = f"{rank:.0f}" if rank <= TOP else f"> {TOP}"
            colour = _RIGHT if rank == 1 else "black" if rank <= TOP else _WRONG
            axes.text(across + 0.5, down + 0.5, text, ha="center", va="center", fontsize=15, color=colour)
    axes.set_xticks([0.5, 1.5], ["shared read", "factor-wise"])
    axes.set_yticks([0.5, 1.5], ["global", "global + local"])
    axes.tick_params(length=0)
    axes.axhline(1, color="0.8", lw=0.8)
    axes.axvline(1, color="0.8", lw=0.8)
    axes.set_title("its rank", fontsize=8)
    _title(figure, example)
    return figure


def cell_ranks(run: StoredRun, query_id: str, answer: int = 0) -> dict[tuple[str, str], float]:
    """Return (evidence, matching) -> the rank of a right answer; `answer` is its index among the right answers."""
    found = {}
    for cell, variant in CELLS.items():
        outcome = run.control(variant)
        found[cell] = outcome.ranks[outcome.ids.index(query_id)][0].right[answer]
    return found


def _ranking(example: Example, method: str) -> tuple[str, list[str], int | None]:
    """Return the method's label, its best pictures, and the rank of the best right answer if answers are known."""
    found = read_ranking(example.run.folder, method, example.run.macro)
    if found is None:
        known = ", ".join(example.run.methods())
        raise BadInput(f"the run {str(example.run.folder)!r} has no method {method!r}: it has {known}")
    rows = {**example.run.metrics["methods"], **example.run.metrics.get("ranked", {})}
    label = rows.get(method, {}).get("label", method)
    rank = None
    if found.outcome is not None:
        best = min(found.outcome.ranks[found.outcome.ids.index(example.query.id)][0].right)
        rank = int(best) if np.isfinite(best) else None
    return label, found.top[example.query.id], rank


def _atoms(axes: Any, spec: EditSpec) -> None:
    """Write the query's atoms in the colours of their factors."""
    said = [(BY_NAME["target"], spec.target), *((BY_NAME[name], ", ".join(spec.atoms(name))) for name in ATOM_FACTORS)]
    lines = [(textwrap.fill(f"{one.name.capitalize()}: {text}", 24), one.colour) for one, text in said if text]
    height = 0.98
    for text, colour in lines:
        shade = tuple(value / 255 for value in colour)
        axes.text(0, height, text, transform=axes.transAxes, va="top", fontsize=6, color=shade)
        height -= 0.11 * (text.count("\n") + 1) + 0.03


def _title(figure: Any, example: Example) -> None:
    protocol = example.run.protocol
    said = textwrap.fill(f"“{example.query.edit.strip()}”", 100)
    figure.suptitle(f"{protocol['dataset']} {protocol['split']}, query {example.query.id}\n{said}", fontsize=8.5)


def _show(axes: Any, picture: Any, title: str, colour: str | None = None) -> None:
    axes.imshow(picture)
    axes.set_title(title if len(title) < 28 else title[:25] + "...", fontsize=7.5, pad=2, color=colour or "black")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(colour is not None)
        spine.set(color=colour or "none", linewidth=2.2)


def _blank(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the paper's figures from runs of tapr eval.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    sweeps = kinds.add_parser("sweeps", help="The sweeps of tau and of the factor weights.")
    sweeps.add_argument("runs", nargs="+", type=Path)
    sweeps.add_argument("--out", type=Path, default=Path("paper"))
    query = kinds.add_parser("query", help="One query.")
    query.add_argument("run", type=Path)
    query.add_argument("query")
    query.add_argument("--methods", default="tapr", help="Names with commas between, one row each.")
    query.add_argument("-k", type=int, default=5, help="Pictures of each method.")
    query.add_argument("--cells", action="store_true", help="A right answer's rank in the four cells instead.")
    query.add_argument("--picture", help="Which right answer, with --cells; default the first.")
    query.add_argument("--data", type=Path, help="The benchmark's folder, if it is no longer where the run read it.")
    query.add_argument("--out", type=Path, help="Without a suffix; default RUN/figures/QUERY-methods or -cells.")
    given = parser.parse_args()
    if given.kind == "sweeps":
        runs = [StoredRun.open(run) for run in given.runs]
        for name, figure in (("tau", draw_tau(runs)), ("theta", draw_theta(runs))):
            if figure is not None:
                print(*save(figure, given.out / name), sep="\n")
        print(*map(ranges, runs), sep="\n")
        return
    example = Example.of(StoredRun.open(given.run), given.query, given.data)
    methods = [name.strip() for name in given.methods.split(",")]
    figure = draw_cells(example, given.picture) if given.cells else draw_methods(example, methods, given.k)
    kind = "cells" if given.cells else "methods"
    print(*save(figure, given.out or given.run / "figures" / f"{given.query}-{kind}"), sep="\n")


if __name__ == "__main__":
    main()
