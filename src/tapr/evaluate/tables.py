"""The tables of a run. Each states the conditions of its numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr.evaluate.diagnostics import solved_alone_sentences
from tapr.evaluate.fallback import fallback_notes
from tapr.evaluate.published import control_figure, method_rows, size_of, source_notes
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.table import Row, Table, mark_notes, marked, write_tables_to
from tapr.utils.files import write_atomically

HERE = "this run"  # the source of a row that is not published


def tables_of(run: StoredRun) -> list[Table]:
    methods = {**run.metrics["methods"], **run.metrics.get("ranked", {})}
    controls = run.metrics["controls"]
    # sweeps change little and are left out of the table by kind of query
    kinds = {name: row for name, row in controls.items() if row["control"] not in ("tau", "theta", "reference")}
    tables = [
        _methods(run) if methods else None,
        *_groups(run, "groups", "Method", run.metrics["methods"].values(), tuple(mark_notes(methods.values(), False))),
        _with_and_without_reference(run),
        _controls(run) if controls else None,
        _gains(run),
        *_groups(run, "control_groups", "Variant", ({"label": name, **row} for name, row in kinds.items())),
    ]
    where = "-".join(str(run.protocol[name]).lower() for name in ("dataset", "split"))
    return [replace(table, label=f"{where}-{table.name}") for table in tables if table is not None]


def write_tables(run: StoredRun) -> list[Path]:
    """Write tables.md with all tables, and a .tex and a .csv file per table."""
    # without any result there are no tables, but the conditions are still written
    said = "\n".join(f"{sentence}  " for sentence in (*conditions(run), *remarks(run)))
    if run.metrics["methods"]:
        write_atomically(run.folder / "ranks.csv", ranks_csv(run).encode())
    return write_tables_to(run.folder, tables_of(run), "tables", said)


def rows_of(run: StoredRun) -> list[dict[str, Any]]:
    """Return a row of plain values per method, the best by the main metric first."""
    rows = []
    for name, row in run.metrics["methods"].items():
        values: dict[str, Any] = {"method": name, "label": row["label"], "offline": row["offline"], "ours": row["ours"]}
        values |= {str(metric): row[str(metric)] for metric in run.all_metrics}
        values |= dict(zip(("low", "high"), row["interval"], strict=True))
        difference = row.get("tapr_minus_this")
        if difference is not None:
            values |= {"tapr_minus_this": difference["value"], "p": difference["p"]}
        rows.append(values)
    return [dict(row) for row in _sorted(rows, str(run.main))]


def ranks_csv(run: StoredRun) -> str:
    """Return the rank of every query's best right answer, a column per method; empty where it has none."""
    outcomes = {name: run.outcome(name) for name in run.metrics["methods"]}
    first = next(iter(outcomes.values()))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["query", "groups", *outcomes])
    for place, query_id in enumerate(first.ids):
        best = [min(outcome.ranks[place][0].right) for outcome in outcomes.values()]
        cells = ["" if math.isinf(rank) else str(int(rank)) for rank in best]
        writer.writerow([query_id, " ".join(first.groups[place]), *cells])
    return buffer.getvalue()


def conditions(run: StoredRun) -> tuple[str, ...]:
    """Return the conditions that every table states: encoder, weights, extractor, theta and how it was chosen,
    protocol, gallery size, hashes; and how many queries one modality alone solves.
    """
    config = run.config
    card, bank, theta, protocol, records = (
        config[name] for name in ("encoder", "bank", "theta", "protocol", "records")
    )
    weights = " / ".join(f"{value:.3g}" for value in theta["weights"].values())
    return (
        f"Encoder {run.encoder} (weights {card['weights_sha256'][:12]}), extractor {card['extractor']}, "
        f"fit {card['fit']}, template {card['template']!r}; bank {bank['precision']}, {bank['sha256'][:12]}.",
        f"theta T/A/P/R = {weights}: {theta['how']}; tau {config['tau']:g}. {_score_sentence(config['score'])}",
        f"{protocol['dataset']} {protocol['split']}: {protocol['gallery']}, {config['queries']:,} queries; reference "
        f"{protocol['reference']}; query text: {protocol['edit_text']}; means {protocol['mean']}.",
        f"Records: {records['origin']} ({records['sha256'][:12]}); code {config['code_sha256'][:12]}.",
        *config.get("notes", ()),
        *solved_alone_sentences(run.metrics.get("alone", ())),
    )


def remarks(run: StoredRun) -> list[str]:
    """Return notes about single methods: their marks, failures, methods not run, queries ranked by the fallback."""
    measured = run.metrics
    notes = mark_notes((*measured["methods"].values(), *measured.get("ranked", {}).values()))
    notes += [f"{name} failed and has no row: {reason}." for name, reason in measured.get("failed", {}).items()]
    notes += [f"{name} was not run: {reason}." for name, reason in measured["skipped"].items()]
    without = {lost["label"]: lost["queries"] for lost in measured.get("fallbacks", {}).values()}
    return notes + [f"{sentence}." for sentence in fallback_notes(without, run.config["queries"])]


def _score_sentence(score: Mapping[str, Any]) -> str:
    if score["rule"] == "paper":
        return "Score: the paper's."
    how = f"by the rule {score['rule']}" if score["reference_weight"] is None else f"stay {score['reference_weight']:g}"
    return f"Score: ours, reference {how}, continuity {score['reference_features']}."


def _methods(run: StoredRun) -> Table:
    """Return ours and the published rows, each sorted by the main metric; where answers are hidden, ours are the
    server's scores.
    """
    main, server, hidden = str(run.main), run.server(), run.metrics.get("ranked", {})
    others = method_rows(run.dataset, run.split, size_of(run.encoder))
    ours = [*run.metrics["methods"].values(), *({**row, **server.get(name, {})} for name, row in hidden.items())]
    known = {name for row in (*ours, *(row["figures"] for row in others)) for name in row}
    names = [str(metric) for metric in run.all_metrics if str(metric) in known] or [*map(str, run.all_metrics)]
    rows: list[Row] = []
    for row in _sorted(ours, main):
        rows.append({"Method": marked(row), "Source": HERE, **{name: row.get(name) for name in names}})
        if run.metrics["methods"]:
            rows[-1] |= {f"{main} 95 %": _range(row["interval"]), "TAPR minus this": _delta(row.get("tapr_minus_this"))}  # type: ignore[operator]
    for row in _sorted(({**row, **row["figures"]} for row in others), main):
        rows.append({"Method": marked(row), "Source": row["source"], **{name: row.get(name) for name in names}})
    if not others:
        rows = [{column: cell for column, cell in row.items() if column != "Source"} for row in rows]
    notes = [*conditions(run), *remarks(run), *mark_notes(others), *source_notes(others)]
    waiting = [row["label"] for name, row in hidden.items() if name not in server]
    if waiting:
        notes.append(
            f"The answers are on the benchmark's server: hand in the files of submissions/, then bring its scores back "
            f"with tapr eval import (no scores yet of {', '.join(waiting)})."
        )
    title = _title(run, "methods, scored by the server" if hidden else "methods")
    brief = ("Method", main, f"{main} 95 %", "TAPR minus this") if run.metrics["methods"] else ()
    return Table("methods", title, tuple(rows), tuple(notes), tuple(names), "Source", brief)


def _with_and_without_reference(run: StoredRun) -> Table | None:
    """Return two rows per method: the reference kept, and removed."""
    official = "kept" if run.protocol["reference"].startswith("kept") else "removed"
    other = "removed" if official == "kept" else "kept"
    rows = [
        {"Method": marked(row, False), "Reference": reference, **_figures(run, figures)}
        for row in run.metrics["methods"].values()
        if "flipped" in row
        for reference, figures in ((official, row), (other, row["flipped"]))
    ]
    title = _title(run, f"the reference {official} (the protocol) and {other}")
    return Table("reference", title, tuple(rows), conditions(run)) if rows else None


def _groups(
    run: StoredRun, name: str, first: str, rows: Iterable[Mapping[str, Any]], notes: tuple[str, ...] = ()
) -> list[Table]:
    """Return a table per grouped metric with a column per kind of query; published rows stand below ours."""
    grouped = [row for row in rows if "groups" in row]
    if not grouped:
        return []
    sizes = {group: figures["queries"] for group, figures in grouped[0]["groups"].items()}
    metrics = [key for key in next(iter(grouped[0]["groups"].values())) if key != "queries"]
    others = method_rows(run.dataset, run.split, size_of(run.encoder)) if name == "groups" else []
    others = [row for row in others if sizes.keys() <= row.get("groups", {}).keys()]
    tables = []
    for metric in metrics:
        cells = [
            {first: marked(row, False)}
            | ({"Source": row.get("source", HERE)} if others else {})
            | {f"{group} ({size:,})": row["groups"][group].get(metric) for group, size in sizes.items()}
            for row in (*grouped, *others)
        ]
        file = f"{name}_{metric.replace('@', '').lower()}" if len(metrics) > 1 else name
        title, compared = _title(run, f"{metric} by kind of query"), tuple(cells[0])[1:]
        sources = (*mark_notes(others), *source_notes(others))
        tables.append(Table(file, title, tuple(cells), (*notes, *sources), compared, "Source"))
    return tables


def _controls(run: StoredRun) -> Table:
    main, rows = str(run.main), list[Row]()
    theirs = {name: _paper(run, "controls", name) for name in run.metrics["controls"]}
    for name, row in run.metrics["controls"].items():
        cells = {"Variant": name, **_figures(run, row), "full minus this": _delta(row.get("full_minus_this"))}
        rows.append(cells | ({f"paper, {main}": theirs[name]} if any(theirs.values()) else {}))
    names = tuple(str(metric) for metric in run.all_metrics)
    brief = ("Variant", main, "full minus this")
    return Table("controls", _title(run, "controls"), tuple(rows), conditions(run), names, brief=brief)


def _gains(run: StoredRun) -> Table | None:
    """Return the gains from factor-wise matching and from local vectors, alone and together."""
    gains: Mapping[str, Mapping[str, Any]] = run.metrics.get("gains", {})
    rows: list[Row] = []
    for name, gain in gains.items():
        theirs = _paper(run, "gains", name)
        cells: Row = {"Gain": name, f"{run.main}, points [95 %]": _delta(gain), "p": f"{gain['p']:.4f}"}
        rows.append(cells if theirs is None else {**cells, "paper": f"{theirs:+.2f}"})
    note = "Interaction: the gain of factor-wise matching with local vectors minus that with global ones alone."
    title = _title(run, "gains of the matched control")
    return Table("gains", title, tuple(rows), (note, *conditions(run))) if rows else None


def _paper(run: StoredRun, kind: str, name: str) -> float | None:
    return control_figure(kind, name, run.dataset, str(run.main), run.encoder) if run.split == "val" else None


def _sorted(rows: Iterable[Mapping[str, Any]], metric: str) -> list[Mapping[str, Any]]:
    """Return the rows with the highest figure first; rows without one come last."""
    return sorted(rows, key=lambda row: -row.get(metric, -1.0))


def _figures(run: StoredRun, row: Mapping[str, Any]) -> dict[str, Any]:
    return {str(metric): row[str(metric)] for metric in run.all_metrics} | {f"{run.main} 95 %": _range(row["interval"])}


def _title(run: StoredRun, what: str) -> str:
    return f"{run.dataset} {run.split}: {what} ({run.encoder})"


def _range(interval: Sequence[float]) -> str:
    return f"{interval[0]:.1f} – {interval[1]:.1f}"


def _delta(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return ""
    low, high = difference["interval"]
    return f"{difference['value']:+.2f} [{low:+.2f}, {high:+.2f}]"
