"""A run's tables in Markdown, LaTeX and CSV, each saying under what conditions its figures hold."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.evaluate import alone, paper
from tapr.evaluate.fallback import fallback_note
from tapr.evaluate.store import StoredRun
from tapr.files import write_atomically

OFFLINE = "†"  # after the name of a method that reads words of the offline captioner
_OFFLINE_NOTE = (
    f"{OFFLINE} offline captioner: the captions of references that it reads, and these with the edit applied, come "
    "from the built-in captioner and caption editor, not from a language model."
)


@dataclass(frozen=True)
class Table:
    """A grid of texts with its title and the sentences that belong under it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", _line(self.columns), _line(["---"] + ["---:"] * (len(self.columns) - 1))]
        lines += [_line(row) for row in self.rows]
        lines += ["", *(f"{note}  " for note in self.notes)]
        return "\n".join(lines).rstrip() + "\n"

    def latex(self) -> str:
        head = " & ".join(_tex(column) for column in self.columns)
        body = "\n".join("    " + " & ".join(_tex(cell) for cell in row) + r" \\" for row in self.rows)
        notes = "\n".join(f"  % {note}" for note in self.notes)
        return (
            "\\begin{table}\n  \\centering\n"
            f"  \\caption{{{_tex(self.title)}}}\n{notes}\n"
            f"  \\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}\n    \\toprule\n    {head} \\\\\n    \\midrule\n"
            f"{body}\n    \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}\n"
        )

    def csv(self) -> str:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([self.columns, *self.rows])
        return buffer.getvalue()


def tables_of(run: StoredRun) -> list[Table]:
    methods = {_marked(row): row for row in run.metrics["methods"].values()}
    controls = run.metrics["controls"]
    # the sweeps move little: they stay out of the table by kind of query
    telling = {name: row for name, row in controls.items() if row["control"] not in ("tau", "theta", "reference")}
    made = [
        _methods(run) if methods else None,
        _groups(run, "groups", "Method", methods, _offline_note(run)),
        _controls(run) if controls else None,
        _groups(run, "control_groups", "Variant", telling),
    ]
    return [table for table in made if table is not None]


def write_tables(run: StoredRun) -> list[Path]:
    """tables.md with all of them, and a .tex and a .csv for each."""
    made = tables_of(run)
    # where the answers are hidden there are no figures, but what is to be said of the run is said
    text = "\n".join(table.markdown() for table in made) or "\n".join(
        f"{said}  " for said in (*conditions(run), *remarks(run))
    )
    files = {"tables.md": text}
    for table in made:
        files |= {f"{table.name}.tex": table.latex(), f"{table.name}.csv": table.csv()}
    for name, text in files.items():
        write_atomically(run.folder / name, text.encode())
    return [run.folder / name for name in files]


def conditions(run: StoredRun) -> tuple[str, ...]:
    """What every table must say: encoder, weights, extractor, theta and how chosen, protocol, gallery size, hashes.

    And what a single modality solves, which says how much the set can tell about composing.
    """
    config = run.config
    card, bank, theta, protocol, records = (
        config[name] for name in ("encoder", "bank", "theta", "protocol", "records")
    )
    weights = " / ".join(f"{value:.3g}" for value in theta["weights"].values())
    return (
        f"Encoder {card['name']} (weights {card['weights_sha256'][:12]}), extractor {card['extractor']}, "
        f"fit {card['fit']}, template {card['template']!r}; bank {bank['precision']}, {bank['sha256'][:12]}.",
        f"theta T/A/P/R = {weights}: {theta['how']}; tau {config['tau']:g}. {_score_sentence(config.get('score'))}",
        f"{protocol['dataset']} {protocol['split']}: {protocol['gallery']}, {config['queries']:,} queries; reference "
        f"{protocol['reference']}; query text: {protocol['edit_text']}; means {protocol['mean']}.",
        f"Records: {records['origin']} ({records['sha256'][:12]}); code {config['code_sha256'][:12]}.",
        *config.get("notes", ()),
        *alone.sentences(run.metrics.get("alone", ())),
    )


def remarks(run: StoredRun) -> list[str]:
    """What must be said of single methods: offline, failed, not run, or ranked by the fallback for some queries."""
    measured = run.metrics
    said = list(_offline_note(run))
    said += [f"{name} failed and has no row: {reason}." for name, reason in measured.get("failed", {}).items()]
    said += [f"{name} was not run: {reason}." for name, reason in measured["skipped"].items()]
    for one in measured.get("fallbacks", {}).values():
        sentence = fallback_note(one["label"], one["queries"], run.config["queries"])
        said += [f"{sentence}."] if sentence else []
    return said


def offline_note(marks: Iterable[bool]) -> tuple[str, ...]:
    """The mark's meaning, where anything is marked."""
    return (_OFFLINE_NOTE,) if any(marks) else ()


def _offline_note(run: StoredRun) -> tuple[str, ...]:
    return offline_note(row.get("offline", False) for row in run.metrics["methods"].values())


def _marked(row: Mapping[str, Any], mark: str = "") -> str:
    """Runs of version 0.1 had no captioner."""
    return f"{row['label']}{mark}{f' {OFFLINE}' if row.get('offline') else ''}"


def _score_sentence(score: Mapping[str, Any] | None) -> str:
    """Runs of version 0.1 knew the paper's score alone."""
    if score is None or score["rule"] == "paper":
        return "Score: the paper's."
    how = f"by the rule {score['rule']}" if score["stay"] is None else f"stay {score['stay']:g}"
    return f"Score: ours, reference {how}, continuity {score['looks']}."


def _methods(run: StoredRun) -> Table:
    names, main = [str(metric) for metric in run.all_metrics], str(run.main)
    protocol, encoder = run.config["protocol"], run.config["encoder"]["name"]
    figures = {
        row["label"]: paper.method_figures(protocol["dataset"], protocol["split"], row["label"], encoder)
        for row in run.metrics["methods"].values()
    }
    beside = any(figures.values())
    rows = []
    for row in run.metrics["methods"].values():
        label = _marked(row, " *" if row["ours"] else "")
        cells = [_percent(row[name]) for name in names]
        published = figures[row["label"]].get(main)
        extra = ["" if published is None else f"{published:.2f}"] if beside else []
        rows.append((label, *cells, _range(row["interval"]), _delta(row.get("tapr_minus_this")), *extra))
    columns = ("Method", *names, f"{main} 95 %", "TAPR minus this", *((f"paper, {main}",) if beside else ()))
    ours = [
        f"\\* {row['label']}, decided here: {row['ours']}." for row in run.metrics["methods"].values() if row["ours"]
    ]
    return Table("methods", _title(run, "methods"), columns, tuple(rows), (*conditions(run), *ours, *remarks(run)))


def _groups(
    run: StoredRun, name: str, first: str, rows: Mapping[str, Mapping[str, Any]], notes: tuple[str, ...] = ()
) -> Table | None:
    """The first grouped metric by kind of query."""
    grouped = {label: row["groups"] for label, row in rows.items() if "groups" in row}
    if not grouped:
        return None
    sizes = {group: found["queries"] for group, found in next(iter(grouped.values())).items()}
    metric = next(key for key in next(iter(next(iter(grouped.values())).values())) if key != "queries")
    columns = (first, *(f"{group} ({size})" for group, size in sizes.items()))
    cells = tuple((label, *(_percent(groups[group][metric]) for group in sizes)) for label, groups in grouped.items())
    return Table(name, _title(run, f"{metric} by kind of query"), columns, cells, notes)


def _controls(run: StoredRun) -> Table:
    names, main = [str(metric) for metric in run.all_metrics], str(run.main)
    protocol, encoder = run.config["protocol"], run.config["encoder"]["name"]
    rows, beside = [], False
    for name, row in run.metrics["controls"].items():
        published = paper.control_figure(protocol["dataset"], protocol["split"], name, encoder)
        beside = beside or published is not None
        cells = [_percent(row[metric]) for metric in names]
        shown = "" if published is None else f"{published:.2f}"
        rows.append((name, *cells, _range(row["interval"]), _delta(row.get("full_minus_this")), shown))
    columns = ("Variant", *names, f"{main} 95 %", "full minus this", *((f"paper, {main}",) if beside else ()))
    return Table(
        "controls", _title(run, "controls"), columns, tuple(row[: len(columns)] for row in rows), conditions(run)
    )


def _title(run: StoredRun, what: str) -> str:
    protocol = run.config["protocol"]
    return f"{protocol['dataset']} {protocol['split']}: {what} ({run.config['encoder']['name']})"


def _percent(value: float) -> str:
    return f"{value:.2f}"


def _range(interval: Sequence[float]) -> str:
    return f"{interval[0]:.1f} – {interval[1]:.1f}"


def _delta(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    low, high = found["interval"]
    return f"{found['value']:+.2f} [{low:+.2f}, {high:+.2f}]"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _tex(text: str) -> str:
    for sign in "&%_#$":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("–", "--").replace(OFFLINE, r"\dag{}")
