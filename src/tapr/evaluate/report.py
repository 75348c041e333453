"""Builds the paper's tables with our numbers beside the published ones, from stored runs: `tapr eval report RUN...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.controls import NO_ATOMS
from tapr.evaluate.coverage import WHOLE, check_report
from tapr.evaluate.diagnostics import CELLS
from tapr.evaluate.published import SIZES, control_figure, method_rows, published, size_of, source_notes
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.table import Row, Table, mark_notes, marked, write_tables_to
from tapr.evaluate.tables import HERE, conditions, remarks

# table -> its title and (dataset, split, metrics); "shirt R@10" is a metric of one group
_METHODS = {
    "table1": (
        "CIRCO and CIRR, test splits",
        (
            ("CIRCO", "test", ("mAP@5", "mAP@10", "mAP@25", "mAP@50")),
            ("CIRR", "test1", ("R@1", "R@5", "R@10", "Rsubset@1", "Rsubset@2", "Rsubset@3")),
        ),
    ),
    "table2": (
        "FashionIQ, validation",
        (
            (
                "FashionIQ",
                "val",
                ("shirt R@10", "shirt R@50", "dress R@10", "dress R@50", "toptee R@10", "toptee R@50", "R@10", "R@50"),
            ),
        ),
    ),
}
_CONTROLLED = (("CIRCO", "mAP@5"), ("CIRR", "R@1"), ("CIRR", "Rsubset@1"), ("FashionIQ", "R@10"))
_FACTORS = ("w/o Target", "w/o Add", "w/o Preserve", "w/o Remove", "Full TAPR")
_OPERATORS = (
    "Factor reassignment (mean)", "w/o reference continuity", "Remove as reward (+)", "Full TAPR", NO_ATOMS,
)  # fmt: skip
_NO_ATOMS_NOTE = (
    f"On FashionIQ the paper's figures without Preserve and without reference continuity are the same (34.77): its "
    f"specs had almost certainly no Preserve atoms there. The row {NO_ATOMS!r} is ours with such specs."
)


def write_report(runs: Sequence[StoredRun], out: Path, coverage: float = WHOLE) -> list[Path]:
    """Write Tables 1 to 5, as far as there are runs for them, and a page with all."""
    seen: dict[tuple[str, str, str], Path] = {}
    for run in runs:
        key = run.dataset, run.split, run.encoder
        if key in seen:
            raise BadInput(f"{seen[key]} and {run.folder} are both on {' '.join(key)}: give one of them")
        seen[key] = run.folder
    check_report(runs, coverage)
    tables = [_methods(name, runs) for name in _METHODS]
    validations: dict[str, list[StoredRun]] = {}
    for run in runs:
        if run.dataset in dict(_CONTROLLED) and run.split == "val" and run.metrics["controls"]:
            validations.setdefault(run.encoder, []).append(run)
    for encoder, own in validations.items():
        end = f"-{encoder.replace(':', '-').replace('/', '-')}" if len(validations) > 1 else ""
        gains = tuple(published()["gains"])
        tables += [
            _controls(f"table3{end}", "Matched control", "controls", tuple(CELLS.values()), encoder, own),
            _controls(f"table3-gains{end}", "Gains of the matched control", "gains", gains, encoder, own),
            _controls(f"table4{end}", "Factors left out", "controls", _FACTORS, encoder, own),
            _controls(f"table5{end}", "Factor assignment and operators", "controls", _OPERATORS, encoder, own),
        ]
    return write_tables_to(out, tables, "paper")


def _methods(name: str, runs: Sequence[StoredRun]) -> Table:
    """Return a table of methods: under each size of encoder the published rows, then ours."""
    title, parts = _METHODS[name]
    entries: list[tuple[str, str, dict[str, Any]]] = []  # size, "DATASET ", row
    used = [run for run in runs if any((run.dataset, run.split) == part[:2] for part in parts)]
    for dataset, split, _ in parts:
        entries += [(size, dataset, row) for size in SIZES for row in method_rows(dataset, split, size)]
    for run in used:
        server = run.server()
        hidden = {name: {**row, **server.get(name, {})} for name, row in run.metrics.get("ranked", {}).items()}
        size = size_of(run.encoder) or run.encoder
        entries += [(size, run.dataset, row) for row in {**run.metrics["methods"], **hidden}.values()]
    columns = [(f"{dataset} {metric}", dataset, metric) for dataset, _, metrics in parts for metric in metrics]
    cells: dict[tuple[str, ...], dict[str, Any]] = {}
    waiting: dict[str, None] = {}
    for size, dataset, row in entries:
        source, figures = row.get("source", HERE), _flat(row)
        wanted = {
            column: figures[metric] for column, where, metric in columns if where == dataset and metric in figures
        }
        if not wanted:
            waiting[row["label"]] = None
            continue
        key = size, source, row["label"]
        empty = {"Encoder": size, "Method": marked(row), "Source": source, **{column: None for column, _, _ in columns}}
        cells.setdefault(key, empty).update(wanted)
    order = {size: place for place, size in enumerate(SIZES)}
    rows: list[Row] = [cells[key] for key in sorted(cells, key=lambda key: order.get(key[0], len(order)))]
    notes = [*map(_intervals, used, (run.metrics["methods"] for run in used)), *_notes(used)]
    notes += [*mark_notes(row for _, _, row in entries), *source_notes([row for *_, row in entries if "source" in row])]
    if waiting:
        notes.append(f"No scores yet of {', '.join(waiting)}: bring them in with tapr eval import.")
    compared = tuple(column for column, _, _ in columns)
    return Table(name, title, tuple(rows), tuple(filter(None, notes)), compared, "Encoder")


def _flat(row: Mapping[str, Any]) -> dict[str, float]:
    """Return metric -> percent of a published row or of ours, with "GROUP METRIC" for the groups."""
    groups = {f"{group} {metric}": value for group, at in row.get("groups", {}).items() for metric, value in at.items()}
    return {**row, **row.get("figures", {}), **groups}


def _controls(
    name: str, title: str, kind: str, variants: Sequence[str], encoder: str, runs: Sequence[StoredRun]
) -> Table:
    """Return a table of controls or gains: the paper's figure and ours for every dataset."""
    by_dataset = {run.dataset: run for run in runs}
    rows: list[Row] = []
    for variant in variants:
        row: dict[str, str | float | None] = {"Variant": variant}
        for dataset, metric in _CONTROLLED:
            if kind == "gains" and metric == "Rsubset@1":  # gains are of the main metric
                continue
            run = by_dataset.get(dataset)
            ours = run.metrics.get(kind, {}).get(variant, {}) if run is not None else {}
            row[f"{dataset} {metric}"] = control_figure(kind, variant, dataset, metric)
            row[f"{dataset} {metric}, ours"] = ours.get("value" if kind == "gains" else metric)
        rows.append(row)
    notes = (
        'Columns without "ours" are the paper\'s own figures, of OpenCLIP ViT-L/14, whatever ours are.',
        *(() if kind == "gains" else filter(None, (_intervals(run, run.metrics["controls"]) for run in runs))),
        *_notes(runs),
        *((_NO_ATOMS_NOTE,) if NO_ATOMS in variants else ()),
    )
    compared = () if kind == "gains" else tuple(rows[0])[1:]
    return Table(name, f"{title}, validation (ours: {encoder})", tuple(rows), notes, compared)


def _intervals(run: StoredRun, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the 95 % intervals of our figures; "" where the answers are hidden. Sweeps are left out."""
    around = [
        f"{row.get('label', name)} {row['interval'][0]:.1f} – {row['interval'][1]:.1f}"
        for name, row in rows.items()
        if row.get("control") not in ("tau", "theta")
    ]
    return f"Ours, 95 % intervals of {run.dataset} {run.split} {run.main}: {'; '.join(around)}." if around else ""


def _notes(runs: Sequence[StoredRun]) -> list[str]:
    return [f"{run.folder.name}: {' '.join((*conditions(run), *remarks(run)))}" for run in runs]
