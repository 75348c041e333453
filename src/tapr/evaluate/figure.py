"""Draws one query: the best pictures of several methods, or the ranks of a right answer in the matched control."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Query
from tapr.evaluate.diagnostics import CELLS
from tapr.evaluate.plots import pyplot
from tapr.evaluate.ranking import TOP
from tapr.evaluate.run_files import SPECS, StoredRun, read_lines, read_ranking
from tapr.evaluate.trec import dataset_of
from tapr.images.decode import read_bytes
from tapr.query.factors import BY_NAME
from tapr.query.open_reference import shown
from tapr.query.spec import ATOM_FACTORS, EditSpec

_RIGHT, _WRONG, _PLAIN = "#2a8a4a", "#b3261e", "0.6"
_SIDE = 224  # pixels of a picture


@dataclass(frozen=True)
class Example:
    """A query of a stored run, with everything needed to draw it."""

    run: StoredRun
    query: Query
    pictures: Dataset
    spec: EditSpec | None

    @classmethod
    def of(cls, run: StoredRun, query_id: str, data: Path | None = None) -> Example:
        """`data`: the benchmark's folder, where it is elsewhere now than when the run was made."""
        dataset = dataset_of(run, data)
        query = next((query for query in dataset.queries if query.id == query_id), None)
        if query is None:
            some = ", ".join(query.id for query in dataset.queries[:5])
            raise BadInput(f"the run {str(run.folder)!r} has no query {query_id!r}: its queries are {some}, ...")
        rows = read_lines(run.folder / SPECS) or []
        spec = next((EditSpec.from_dict(row["payload"]) for row in rows if row["id"] == query_id), None)
        return cls(run, query, dataset, spec)

    def picture(self, name: str) -> Any:
        """The whole picture inside a white square, (side, side, 3)."""
        image = ImageOps.contain(shown(read_bytes(self.pictures.pictures[name])), (_SIDE, _SIDE))
        square = Image.new("RGB", (_SIDE, _SIDE), "white")
        square.paste(image, ((_SIDE - image.width) // 2, (_SIDE - image.height) // 2))
        return np.asarray(square)


def draw_methods(example: Example, methods: Sequence[str], count: int = 5) -> Any:
    """The reference, then one row per method with its best pictures, framed green if right and red if wrong."""
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
    """The rank of one right answer in the four cells of the matched control: evidence in rows, matching in columns."""
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
    """(evidence, matching) -> the rank of a query's right answer; `answer` is its index among the right answers."""
    found = {}
    for cell, variant in CELLS.items():
        outcome = run.control(variant)
        found[cell] = outcome.ranks[outcome.ids.index(query_id)][0].right[answer]
    return found


def _ranking(example: Example, method: str) -> tuple[str, list[str], int | None]:
    """The method's label, its best pictures, and the rank of the best right answer if the answers are known."""
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
    """The query's atoms, in the colours of their factors."""
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
