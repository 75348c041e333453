"""The tables of a run. Each states the conditions of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr.evaluate import paper
from tapr.evaluate.diagnostics import solved_alone_sentences
from tapr.evaluate.fallback import fallback_notes
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.table import (
    Table,
    calls_per_query,
    figure,
    marks_of,
    multi_pass_note,
    offline_note,
    ours_note,
    write_tables_to,
)

_CALLS = "calls"  # requests per query of a second pass


def tables_of(run: StoredRun) -> list[Table]:
    methods = {_marked(row): row for row in run.metrics["methods"].values()}
    controls = run.metrics["controls"]
    # sweeps change little and are left out of the table by kind of query
    telling = {name: row for name, row in controls.items() if row["control"] not in ("tau", "theta", "reference")}
    made = [
        _methods(run) if methods else None,
        _handed_in(run) if run.metrics.get("ranked") else None,
        *_groups(run, "groups", "Method", methods, (*_offline_note(run), *multi_pass_note(_all_rows(run)))),
        _flipped(run),
        _controls(run) if controls else None,
        _gains(run),
        *_groups(run, "control_groups", "Variant", telling),
    ]
    where = "-".join(str(run.protocol[name]).lower() for name in ("dataset", "split"))
    return [replace(table, label=f"{where}-{table.name}") for table in made if table is not None]


def write_tables(run: StoredRun) -> list[Path]:
    """Write tables.md with all tables, and a .tex and a .csv file per table."""
    # without any result there are no tables, but the conditions are still written
    said = "\n".join(f"{sentence}  " for sentence in (*conditions(run), *remarks(run)))
    return write_tables_to(run.folder, tables_of(run), "tables", said)


def conditions(run: StoredRun) -> tuple[str, ...]:
    """The conditions that every table states: encoder, weights, extractor, theta and how it was chosen, protocol,
    gallery size, hashes; and how many queries one modality alone solves.
    """
    config = run.config
    card, bank, theta, protocol, records = (
        config[name] for name in ("encoder", "bank", "theta", "protocol", "records")
    )
    weights = " / ".join(f"{value:.3g}" for value in theta["weights"].values())
    return (
        f"Encoder {run.encoder} (weights {card['weights_sha256'][:12]}), extractor {card['extractor']}, "
        f"fit {card['fit']}, template {card['template']!r}; bank {bank['precision']}, {bank['sha256'][:12]}.",
        f"theta T/A/P/R = {weights}: {theta['how']}; tau {config['tau']:g}. {_score_sentence(config.get('score'))}",
        f"{protocol['dataset']} {protocol['split']}: {protocol['gallery']}, {config['queries']:,} queries; reference "
        f"{protocol['reference']}; query text: {protocol['edit_text']}; means {protocol['mean']}.",
        f"Records: {records['origin']} ({records['sha256'][:12]}); code {config['code_sha256'][:12]}.",
        *config.get("notes", ()),
        *solved_alone_sentences(run.metrics.get("alone", ())),
    )


def remarks(run: StoredRun) -> list[str]:
    """Notes about single methods: offline captions, failures, methods not run, queries ranked by the fallback."""
    measured = run.metrics
    said = [*_offline_note(run), *multi_pass_note(_all_rows(run))]
    said += [f"{name} failed and has no row: {reason}." for name, reason in measured.get("failed", {}).items()]
    said += [f"{name} was not run: {reason}." for name, reason in measured["skipped"].items()]
    without = {one["label"]: one["queries"] for one in measured.get("fallbacks", {}).values()}
    return said + [f"{sentence}." for sentence in fallback_notes(without, run.config["queries"])]


def _all_rows(run: StoredRun) -> list[dict[str, Any]]:
    return [*run.metrics["methods"].values(), *run.metrics.get("ranked", {}).values()]


def _offline_note(run: StoredRun) -> tuple[str, ...]:
    return offline_note(row.get("offline", False) for row in run.metrics["methods"].values())


def _marked(row: Mapping[str, Any], ours: bool = False) -> str:
    return f"{row['label']}{marks_of(row, ours)}"


def _score_sentence(score: Mapping[str, Any] | None) -> str:
    """How the score was configured. (Runs of version 0.1 have no "score" field: the paper's.)"""
    if score is None or score["rule"] == "paper":
        return "Score: the paper's."
    how = f"by the rule {score['rule']}" if score["reference_weight"] is None else f"stay {score['reference_weight']:g}"
    return f"Score: ours, reference {how}, continuity {score['reference_features']}."


def _methods(run: StoredRun) -> Table:
    names, main = [str(metric) for metric in run.all_metrics], str(run.main)
    protocol, encoder = run.protocol, run.encoder
    published = {
        row["label"]: paper.method_figures(protocol["dataset"], protocol["split"], row["label"], encoder)
        for row in run.metrics["methods"].values()
    }
    beside = [name for name in names if any(name in figures for figures in published.values())]
    rows = []
    for row in run.metrics["methods"].values():
        cells = [figure(row[name]) for name in names]
        extra = [figure(published[row["label"]].get(name)) for name in beside]
        rows.append((_marked(row, True), *cells, _range(row["interval"]), _delta(row.get("tapr_minus_this")), *extra))
    columns = ("Method", *names, f"{main} 95 %", "TAPR minus this", *(f"paper, {name}" for name in beside))
    notes = (*conditions(run), *ours_note(run.metrics["methods"].values()), *remarks(run))
    telling: tuple[str, ...] = (main, f"{main} 95 %", "TAPR minus this")
    if any(row.get("multi_pass") for row in run.metrics["methods"].values()):
        columns, telling = (*columns, _CALLS), (main, _CALLS, *telling[1:])
        methods = run.metrics["methods"].values()
        rows = [(*cells, calls_per_query(row)) for cells, row in zip(rows, methods, strict=True)]
    return Table("methods", _title(run, "methods"), columns, tuple(rows), notes, tuple(names), telling=telling)


def _handed_in(run: StoredRun) -> Table:
    """A split with hidden answers: imported server scores, and the paper's rows."""
    protocol, encoder, server = run.protocol, run.encoder, run.server()
    published = paper.method_rows(protocol["dataset"], protocol["split"], encoder)
    shown = [str(metric) for metric in run.all_metrics]
    names = [name for name in shown if any(name in row for row in (*published.values(), *server.values()))] or shown
    ranked = run.metrics["ranked"]
    ours = [
        (_marked(row, True), *(figure(server.get(name, {}).get(metric)) for metric in names))
        for name, row in ranked.items()
    ]
    theirs = [
        (f"{label}, the paper", *(figure(row.get(metric)) for metric in names)) for label, row in published.items()
    ]
    notes = [*conditions(run), *ours_note(ranked.values()), *remarks(run)]
    waiting = [row["label"] for name, row in ranked.items() if name not in server]
    if waiting:
        notes.append(
            f"The answers are on the benchmark's server: hand in the files of submissions/, then bring its scores back "
            f"with tapr eval import (no scores yet of {', '.join(waiting)})."
        )
    columns = ("Method", *names)
    blocks = (len(ours),) if theirs else ()
    title = _title(run, "methods, scored by the server")
    return Table("methods", title, columns, (*ours, *theirs), tuple(notes), tuple(names), blocks)


def _flipped(run: StoredRun) -> Table | None:
    """With the reference kept and removed: two rows per method."""
    methods = [row for row in run.metrics["methods"].values() if "flipped" in row]
    if not methods:
        return None
    names = [str(metric) for metric in run.all_metrics]
    official = "kept" if run.protocol["reference"].startswith("kept") else "removed"
    other = "removed" if official == "kept" else "kept"
    rows = []
    for row in methods:
        for reference, found in ((official, row), (other, row["flipped"])):
            rows.append((_marked(row), reference, *(figure(found[name]) for name in names), _range(found["interval"])))
    columns = ("Method", "Reference", *names, f"{run.main} 95 %")
    title = _title(run, f"the reference {official} (the protocol) and {other}")
    return Table("reference", title, columns, tuple(rows), conditions(run), words=2)


def _groups(
    run: StoredRun, name: str, first: str, rows: Mapping[str, Mapping[str, Any]], notes: tuple[str, ...] = ()
) -> list[Table]:
    """Every grouped metric per kind of query, with the paper's values below ours if it has them."""
    grouped = {label: row["groups"] for label, row in rows.items() if "groups" in row}
    if not grouped:
        return []
    sizes = {group: found["queries"] for group, found in next(iter(grouped.values())).items()}
    metrics = [key for key in next(iter(next(iter(grouped.values())).values())) if key != "queries"]
    protocol = run.protocol
    published = paper.group_rows(protocol["dataset"], protocol["split"], run.encoder) if name == "groups" else {}
    made = []
    for metric in metrics:
        columns = (first, *(f"{group} ({size:,})" for group, size in sizes.items()))
        ours = [(label, *(figure(groups[group][metric]) for group in sizes)) for label, groups in grouped.items()]
        theirs = [
            (f"{label}, the paper", *(figure(groups[group].get(metric)) for group in sizes))
            for label, groups in published.items()
            if all(group in groups for group in sizes)
        ]
        table = f"{name}_{metric.replace('@', '').lower()}" if len(metrics) > 1 else name
        title, blocks = _title(run, f"{metric} by kind of query"), (len(ours),) if theirs else ()
        made.append(Table(table, title, columns, (*ours, *theirs), notes, columns[1:], blocks))
    return made


def _controls(run: StoredRun) -> Table:
    names, main = [str(metric) for metric in run.all_metrics], str(run.main)
    protocol, encoder = run.protocol, run.encoder
    rows, beside = [], False
    for name, row in run.metrics["controls"].items():
        published = paper.control_figure(protocol["dataset"], protocol["split"], name, encoder)
        beside = beside or published is not None
        cells = [figure(row[metric]) for metric in names]
        rows.append((name, *cells, _range(row["interval"]), _delta(row.get("full_minus_this")), figure(published)))
    columns = ("Variant", *names, f"{main} 95 %", "full minus this", *((f"paper, {main}",) if beside else ()))
    cut = tuple(row[: len(columns)] for row in rows)
    telling = main, "full minus this"
    return Table("controls", _title(run, "controls"), columns, cut, conditions(run), tuple(names), telling=telling)


def _gains(run: StoredRun) -> Table | None:
    """The gains from factor-wise matching and from local vectors, alone and together."""
    gains = run.metrics.get("gains")
    if not gains:
        return None
    protocol, main = run.protocol, str(run.main)
    published = paper.gain_figures(protocol["dataset"], protocol["split"], run.encoder)
    rows = [
        (name, _delta(found), f"{found['p']:.4f}", *((f"{published[name]:+.2f}",) if published else ()))
        for name, found in gains.items()
    ]
    columns = ("Gain", f"{main}, points [95 %]", "p", *(("paper",) if published else ()))
    note = "Interaction: the gain of factor-wise matching with local vectors minus that with global ones alone."
    title = _title(run, "gains of the matched control")
    return Table("gains", title, columns, tuple(rows), (note, *conditions(run)))


def _title(run: StoredRun, what: str) -> str:
    protocol = run.config["protocol"]
    return f"{protocol['dataset']} {protocol['split']}: {what} ({run.encoder})"


def _range(interval: Sequence[float]) -> str:
    return f"{interval[0]:.1f} – {interval[1]:.1f}"


def _delta(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    low, high = found["interval"]
    return f"{found['value']:+.2f} [{low:+.2f}, {high:+.2f}]"
