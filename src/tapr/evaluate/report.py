"""Builds the paper's tables with our numbers beside theirs, from stored runs: `tapr eval report RUN...`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate import paper
from tapr.evaluate.controls import NO_ATOMS
from tapr.evaluate.coverage import WHOLE, check_report
from tapr.evaluate.diagnostics import CELLS
from tapr.evaluate.plots import FULL, SHORT, draw_tau, draw_theta, save, tau_points, theta_points
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.table import MULTI_PASS, NOTHING, Table, figure, marks_of, offline_note, ours_note, write_tables_to
from tapr.evaluate.tables import conditions, remarks
from tapr.query.spec import FACTORS
from tapr.utils.files import write_atomically

BACKBONES = ("ViT-B", "ViT-L", "ViT-G")
# dataset, metric, and the column of the paper's data
CONTROLLED = (("CIRCO", "mAP@5", "circo_map5"), ("CIRR", "R@1", "cirr_r1"), ("FashionIQ", "R@10", "fiq_r10"))
# Tables 4 and 5 give one more figure of CIRR, for some rows
ABLATED = (*CONTROLLED[:2], ("CIRR", "Rsubset@1", "cirr_sub1"), *CONTROLLED[2:])
_PAIRED = (("", 1), *((dataset, 2) for dataset, _, _ in CONTROLLED))
_NO_ATOMS_NOTE = (
    f"On FashionIQ the paper's figures without Preserve and without reference continuity are the same (34.77): its "
    f"specs had almost certainly no Preserve atoms there. The row {NO_ATOMS!r} is ours with such specs."
)
_MEANT = 'Rows and columns without "ours" are the paper\'s own figures.'


@dataclass(frozen=True)
class _Column:
    title: str
    paper: str  # its name in the paper's data
    dataset: str
    split: str
    value: Callable[[Mapping[str, Any]], float | None]  # reads it from a method's row of a run


def write_report(runs: Sequence[StoredRun], out: Path, coverage: float = WHOLE) -> list[Path]:
    """Tables 1 to 5 and the figures of tau and theta, as far as there are runs for them, and a page with all."""
    _refuse_duplicates(runs)
    check_report(runs, coverage)
    tables = [_main_results(runs), _fashioniq(runs)]
    for encoder, own in _validations(runs).items():
        tables += [_matched(encoder, own), *_ablations(encoder, own)]
        tables += _sweeps(encoder, own)
    written = write_tables_to(out, tables, "paper")
    figures = []
    for encoder, own in _validations(runs).items():
        for name, drawn in (("tau", draw_tau(own)), ("theta", draw_theta(own))):
            if drawn is not None:
                figures += save(drawn, out / _file(name, encoder, runs))
    page = out / "paper.md"
    shown = "".join(f"\n![{path.stem}]({path.name})\n" for path in figures if path.suffix == ".png")
    write_atomically(page, (page.read_text(encoding="utf-8") + shown).encode())
    return [*written, *figures]


def _refuse_duplicates(runs: Sequence[StoredRun]) -> None:
    seen: dict[tuple[str, str, str], Path] = {}
    for run in runs:
        key = run.dataset, run.split, run.encoder
        if key in seen:
            raise BadInput(f"{seen[key]} and {run.folder} are both on {' '.join(key)}: give one of them")
        seen[key] = run.folder


def _main_results(runs: Sequence[StoredRun]) -> Table:
    """Table 1: the test splits of CIRCO and CIRR, scored by the benchmarks' servers."""
    circo = [_Column(f"CIRCO mAP@{k}", f"circo_map{k}", "CIRCO", "test", _metric(f"mAP@{k}")) for k in (5, 10, 25, 50)]
    recall = [_Column(f"CIRR R@{k}", f"cirr_r{k}", "CIRR", "test1", _metric(f"R@{k}")) for k in (1, 5, 10)]
    subset = [_Column(f"CIRR Rsub@{k}", f"cirr_sub{k}", "CIRR", "test1", _metric(f"Rsubset@{k}")) for k in (1, 2, 3)]
    title = "CIRCO and CIRR, test splits"
    return _beside(runs, "table1", title, paper.results()["circo_cirr_test"], [*circo, *recall, *subset])


def _fashioniq(runs: Sequence[StoredRun]) -> Table:
    """Table 2: FashionIQ by category."""
    columns = []
    for group in ("shirt", "dress", "toptee"):
        for k in (10, 50):
            value = _group_metric(group, f"R@{k}")
            columns.append(_Column(f"{group} R@{k}", f"{group}_r{k}", "FashionIQ", "val", value))
    columns += [_Column(f"mean R@{k}", f"avg_r{k}", "FashionIQ", "val", _metric(f"R@{k}")) for k in (10, 50)]
    return _beside(runs, "table2", "FashionIQ, validation", paper.results()["fashioniq_val"], columns)


def _beside(
    runs: Sequence[StoredRun],
    name: str,
    title: str,
    published: Sequence[Mapping[str, Any]],
    columns: Sequence[_Column],
) -> Table:
    """The paper's rows and, under those of each size of encoder, ours of the same datasets and splits."""
    titles = tuple(column.title for column in columns)
    wanted = {(column.dataset, column.split) for column in columns}
    used = [run for run in runs if (run.dataset, run.split) in wanted]
    sizes = [*BACKBONES, *dict.fromkeys(_size(run) for run in used if _size(run) not in BACKBONES)]
    rows: list[tuple[str, ...]] = []
    blocks: list[int] = []
    marks: list[Mapping[str, Any]] = []
    waiting: list[str] = []
    for size in sizes:
        blocks.append(len(rows))
        for row in published:
            if row["backbone"] == size:
                rows.append((size, row["method"], *(figure(row.get(column.paper)) for column in columns)))
        own = [run for run in used if _size(run) == size]
        found = [_method_rows(run) for run in own]
        for method in dict.fromkeys(method for rows_of in found for method in rows_of):
            cells = [NOTHING] * len(columns)
            for run, rows_of in zip(own, found, strict=True):
                for place, column in enumerate(columns):
                    if (column.dataset, column.split) == (run.dataset, run.split) and method in rows_of:
                        cells[place] = figure(column.value(rows_of[method]))
            said = next(rows_of[method] for rows_of in found if method in rows_of)
            if all(cell == NOTHING for cell in cells):
                waiting.append(said["label"])
                continue
            marks.append(said)
            rows.append((size, _label(said), *cells))
    notes = [
        _MEANT,
        *_relative(rows, titles[0]),
        *(_intervals(run, {row["label"]: row for row in run.metrics["methods"].values()}) for run in used),
        *_notes(used),
        *ours_note(marks),
        *offline_note(bool(row.get("offline")) for row in marks),
    ]
    notes = [note for note in notes if note]
    if waiting:
        notes.append(f"No scores yet of {', '.join(dict.fromkeys(waiting))}: bring them in with tapr eval import.")
    full = f"{title}: the paper's rows and ours"
    spans = (("", 2), *((name, len(list(members))) for name, members in groupby(titles, lambda one: one.split()[0])))
    return Table(
        name, full, ("Encoder", "Method", *titles), tuple(rows), tuple(notes), titles, tuple(blocks[1:]), 2, spans
    )


def _relative(rows: Sequence[tuple[str, ...]], title: str) -> list[str]:
    """How far TAPR is ahead of the strongest other method in the first column, relative: as the paper tells it."""
    said = []
    for size in dict.fromkeys(row[0] for row in rows):
        for whose, ours in (("the paper's", False), ("ours", True)):
            found = {row[1]: float(row[2]) for row in rows if row[0] == size and row[2] != NOTHING}
            found = {name: value for name, value in found.items() if (", ours" in name) is ours}
            own = next((value for name, value in found.items() if name.split(",")[0] == "TAPR"), None)
            others = [value for name, value in found.items() if not name.startswith("TAPR") and MULTI_PASS not in name]
            if own is not None and others and max(others) > 0:
                said.append(f"{size} {100 * (own / max(others) - 1):+.1f} % ({whose})")
    return [f"{title} of TAPR against the strongest other method: {', '.join(said)}."] if said else []


def _method_rows(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Method -> its row of metrics; from the server if the answers are hidden."""
    server = run.server()
    hidden = {name: {**row, **server.get(name, {})} for name, row in run.metrics.get("ranked", {}).items()}
    return {**run.metrics["methods"], **hidden}


def _matched(encoder: str, runs: Sequence[StoredRun]) -> Table:
    """Table 3: the matched control with its gains and their interaction."""
    rows = []
    cells = {name: cell for cell, name in CELLS.items()}
    for row in paper.results()["matched_control_vitl_val"]:
        evidence = "local" if row["evidence"] == "global+local" else "global"
        reading = "factor-wise" if row["factor_wise"] else "shared"
        variant = next(name for name, cell in cells.items() if cell == (evidence, reading))
        shown = f"{'global + local' if evidence == 'local' else 'global'}, {reading}"
        rows.append((shown, *_pairs(CONTROLLED, runs, row, partial(_control, variant))))
    edge = len(rows)
    for row in paper.results()["matched_gains_vitl_val"]:
        name = row["gain"]
        rows.append((f"gain: {name}", *_pairs(CONTROLLED, runs, row, partial(_gain, name), "+.2f")))
    columns = ("Evidence, matching", *_pair_titles(CONTROLLED))
    title = f"Matched control, its gains and interaction, validation (ours: {encoder})"
    return Table(
        _file("table3", encoder, runs), title, columns, tuple(rows), _control_notes(runs), blocks=(edge,), spans=_PAIRED
    )


def _ablations(encoder: str, runs: Sequence[StoredRun]) -> list[Table]:
    """Tables 4 and 5: factors left out, and changed operators."""
    made = []
    for name, what, source in (
        ("table4", "Factors left out", "factor_ablation_vitl_val"),
        ("table5", "Factor assignment and operators", "operator_ablation_vitl_val"),
    ):
        published = [*paper.results()[source]]
        if not any(row["variant"] == "Full TAPR" for row in published):
            published += [row for row in paper.results()["factor_ablation_vitl_val"] if row["variant"] == "Full TAPR"]
        ours = [(row["variant"], row) for row in published]
        if name == "table5":
            ours.append((NO_ATOMS, {}))
        rows = tuple((variant, *_pairs(ABLATED, runs, row, partial(_control, variant))) for variant, row in ours)
        columns = ("Variant", *_pair_titles(ABLATED))
        title = f"{what}, validation (ours: {encoder})"
        spans = (("", 1), *((dataset, 2) for dataset, _, _ in ABLATED))
        notes = (*_control_notes(runs), _NO_ATOMS_NOTE)
        made.append(Table(_file(name, encoder, runs), title, columns, rows, notes, columns[1:], spans=spans))
    return made


def _sweeps(encoder: str, runs: Sequence[StoredRun]) -> list[Table]:
    """How far the figures move over the grid of tau, and under each weight's scaling: the paper's numbers, and ours."""
    temperature, weights = paper.results()["temperature_vitl_val"], paper.results()["weight_sensitivity_vitl_val"]
    rows = []
    for run in runs:
        name, main = _dataset(run), str(run.main)
        taus = [float(row[main]) for _, row in tau_points(run)]
        full = float(run.metrics["controls"][FULL][main])
        scaled = [value for factor in FACTORS for _, value in theta_points(run, factor)]
        spread = max(taus) - min(taus) if taus else None
        drop = full - min(scaled) if scaled else None
        theirs = (temperature["range"].get(SHORT.get(name)), weights["max_drop"].get(SHORT.get(name)))
        if spread is not None or drop is not None:
            rows.append((f"{name} {main}", figure(theirs[0]), figure(spread), figure(theirs[1]), figure(drop)))
    columns = ("Dataset", "tau: range", "tau: range, ours", "theta: largest drop", "theta: largest drop, ours")
    title = f"Sweeps of tau and theta in points, validation (ours: {encoder})"
    return [Table(_file("sweeps", encoder, runs), title, columns, tuple(rows), (_MEANT,))] if rows else []


def _pairs(
    columns: Sequence[tuple[str, str, str]],
    runs: Sequence[StoredRun],
    row: Mapping[str, Any],
    ours: Callable[[StoredRun, str], float | None],
    form: str = ".2f",
) -> list[str]:
    """The paper's figure and ours, for each (dataset, metric, column of the paper's row)."""
    cells = []
    for dataset, metric, column in columns:
        own = next((ours(run, metric) for run in runs if _dataset(run) == dataset), None)
        cells += [NOTHING if value is None else format(value, form) for value in (row.get(column), own)]
    return cells


def _pair_titles(columns: Sequence[tuple[str, str, str]]) -> list[str]:
    return [title for dataset, metric, _ in columns for title in (f"{dataset} {metric}", f"{dataset} ours {metric}")]


def _control_notes(runs: Sequence[StoredRun]) -> tuple[str, ...]:
    theirs = "The paper's figures are those of OpenCLIP ViT-L/14, whatever ours are."
    around = (_intervals(run, run.metrics["controls"]) for run in runs)
    return (_MEANT, theirs, *filter(None, around), *_notes(runs))


def _intervals(run: StoredRun, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The 95 % intervals of our figures; "" where the answers are hidden. Sweeps have a table of their own."""
    found = [
        f"{name} {row['interval'][0]:.1f} – {row['interval'][1]:.1f}"
        for name, row in rows.items()
        if "interval" in row and row.get("control") not in ("tau", "theta")
    ]
    return f"Ours, 95 % intervals of {_dataset(run)} {_split(run)} {run.main}: {'; '.join(found)}." if found else ""


def _validations(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """Encoder -> its runs on validation splits that have controls."""
    known = {dataset for dataset, _, _ in CONTROLLED}
    found: dict[str, list[StoredRun]] = {}
    for run in runs:
        if run.dataset in known and run.split == "val" and run.metrics["controls"]:
            found.setdefault(run.encoder, []).append(run)
    return found


def _notes(runs: Iterable[StoredRun]) -> list[str]:
    said = []
    for run in runs:
        said += [f"{run.folder.name}: {' '.join((*conditions(run), *remarks(run)))}"]
    return said


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['label']}, ours{marks_of(row)}"


def _metric(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda row: row.get(name)


def _group_metric(group: str, name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda row: row.get("groups", {}).get(group, {}).get(name)


def _control(variant: str, run: StoredRun, metric: str) -> float | None:
    row = run.metrics["controls"].get(variant)
    return None if row is None or metric not in row else float(row[metric])


def _gain(name: str, run: StoredRun, metric: str) -> float | None:
    row = run.metrics.get("gains", {}).get(name)
    return None if row is None else float(row["value"])


def _file(name: str, encoder: str, runs: Sequence[StoredRun]) -> str:
    """A file name; it names the encoder only if there is more than one."""
    if len({run.encoder for run in runs if run.metrics["controls"]}) < 2:
        return name
    return f"{name}-{encoder.replace(':', '-').replace('/', '-')}"


def _size(run: StoredRun) -> str:
    return paper.backbone(_encoder(run)) or _encoder(run)


def _dataset(run: StoredRun) -> str:
    return str(run.config["protocol"]["dataset"])


def _split(run: StoredRun) -> str:
    return str(run.config["protocol"]["split"])


def _encoder(run: StoredRun) -> str:
    return run.encoder
