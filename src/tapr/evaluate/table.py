"""A table of rows, written as Markdown, LaTeX and CSV, and the marks that its rows may carry."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tapr.utils.files import write_atomically

OFFLINE = "†"  # marks a method that uses text from the offline captioner
OURS = "*"  # marks a method for which we had to decide something ourselves
MULTI_PASS = "‡"  # marks a method that asks a language model about pictures of the gallery
MULTI_PASS_NOTE = f"{MULTI_PASS} multi-pass: a language model looks at pictures of the gallery at every search."
OFFLINE_NOTE = (
    f"{OFFLINE} offline captioner: the captions of references that it reads, and these with the edit applied, come "
    "from the built-in captioner and caption editor, not from a language model."
)
NOTHING = "–"  # a cell without a value
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "–": "--", "−": "$-$",
    OFFLINE: r"\dag{}", MULTI_PASS: r"\ddag{}", "×": r"$\times$", "✓": r"$\surd$", "θ": r"$\theta$", "τ": r"$\tau$",
    "“": "``", "”": "''", '"': "''",
}  # fmt: skip
Row = Mapping[str, str | float | None]


@dataclass(frozen=True)
class Table:
    """Rows of words and figures with a title and notes."""

    name: str  # of its files
    title: str
    rows: tuple[Row, ...]  # column -> cell; NOTHING stands where a row lacks a column
    notes: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()  # columns whose highest figure is bold
    block: str = ""  # a line is drawn where the value of this column changes; the highest is sought between two lines
    brief: tuple[str, ...] = ()  # the columns that a terminal shows; all if empty
    label: str = ""  # in LaTeX, where the tables of several runs stand in one document; else its name

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for row in self.rows for column in row))

    def lines(self, columns: Sequence[str] = ()) -> list[list[str]]:
        """Return the rows as text, figures with two digits."""
        return [[_text(row.get(column)) for column in columns or self.columns] for row in self.rows]

    def is_words(self, column: str) -> bool:
        return any(isinstance(cell := row.get(column), str) and cell[:1].isalpha() for row in self.rows)

    def markdown(self) -> str:
        marks = ["---" if self.is_words(column) else "---:" for column in self.columns]
        lines = [_joined(self.columns), _joined(marks), *map(_joined, self._with_bold("**{}**"))]
        notes = (f"\\{note}" if note.startswith(OURS) else note for note in self.notes)
        return "\n".join([f"### {self.title}", "", *lines, "", *(f"{note}  " for note in notes)]).rstrip() + "\n"

    def latex(self) -> str:
        """Return a table for booktabs and adjustbox, no wider than the page; the notes stand under the rules."""
        shape = "".join("l" if self.is_words(column) else "r" for column in self.columns)
        rows = self._with_bold(r"\textbf{{{}}}", tex)
        blocks = [rows[start:stop] for start, stop in self._spans()]
        body = "\n    \\midrule\n".join("\n".join(f"    {' & '.join(row)} \\\\" for row in block) for block in blocks)
        notes = "\n".join(f"    {tex(note)}\\par" for note in self.notes)
        return (
            f"% \\usepackage{{booktabs,adjustbox}}\n\\begin{{table*}}[t]\n  \\centering\\footnotesize\n"
            f"  \\caption{{{tex(self.title)}}}\n  \\label{{tab:{self.label or self.name}}}\n"
            "  \\begin{adjustbox}{max width=\\linewidth}\n"
            f"  \\begin{{tabular}}{{@{{}}{shape}@{{}}}}\n    \\toprule\n"
            f"    {' & '.join(map(tex, self.columns))} \\\\\n    \\midrule\n{body}\n    \\bottomrule\n"
            "  \\end{tabular}\n  \\end{adjustbox}\n  \\par\\smallskip\n"
            f"  \\begin{{minipage}}{{\\linewidth}}\\scriptsize\n{notes}\n  \\end{{minipage}}\n\\end{{table*}}\n"
        )

    def csv(self) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([self.columns, *self.lines()])
        return buffer.getvalue()

    def _with_bold(self, form: str, write: Callable[[str], str] = str) -> list[list[str]]:
        """Return the rows as text with every block's highest figures in bold; equal figures all."""
        lines, columns = [list(map(write, line)) for line in self.lines()], self.columns
        for start, stop in self._spans():
            for column in self.compared:
                cells = {place: self.rows[place].get(column) for place in range(start, stop)}
                figures = {place: round(cell, 2) for place, cell in cells.items() if isinstance(cell, float)}
                for place, value in figures.items():
                    if len(figures) > 1 and value == max(figures.values()):
                        at = columns.index(column)
                        lines[place][at] = form.format(lines[place][at])
        return lines

    def _spans(self) -> list[tuple[int, int]]:
        """Return the first row of every block and the row after its last."""
        sizes = [len(list(block)) for _, block in groupby(self.rows, lambda row: row.get(self.block))]
        return [(sum(sizes[:place]), sum(sizes[: place + 1])) for place in range(len(sizes))]


def write_tables_to(folder: Path, tables: Sequence[Table], name: str, otherwise: str = "") -> list[Path]:
    """Write NAME.md with all tables, and a .tex and a .csv file per table."""
    texts = {f"{name}.md": "\n".join(table.markdown() for table in tables) or otherwise}
    for table in tables:
        texts |= {f"{table.name}.tex": table.latex(), f"{table.name}.csv": table.csv()}
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_atomically(folder / file, text.encode())
    return [folder / file for file in texts]


def marked(row: Mapping[str, Any], ours: bool = True) -> str:
    """Return a method's label with its marks."""
    marks = ((OURS, ours and row.get("ours")), (OFFLINE, row.get("offline")), (MULTI_PASS, row.get("multi_pass")))
    return str(row["label"]) + "".join(f" {mark}" for mark, applies in marks if applies)


def mark_notes(rows: Iterable[Mapping[str, Any]], ours: bool = True) -> list[str]:
    """Return what the rows' marks mean: one sentence per decision of our own, with the methods that share it."""
    rows, by_reason, notes = list(rows), dict[str, dict[str, None]](), list[str]()
    for row in rows:
        if ours and row.get("ours"):
            by_reason.setdefault(row["ours"], {})[row["label"]] = None
        if isinstance(row.get("multi_pass"), str):  # what the passes cost
            notes.append(f"{MULTI_PASS} {row['label']}: {row['multi_pass']}.")
    if any(row.get("multi_pass") is True for row in rows):
        notes.append(MULTI_PASS_NOTE)
    if any(row.get("offline") for row in rows):
        notes.append(OFFLINE_NOTE)
    decided = [f"{OURS} {'; '.join(labels)}, decided here: {reason}." for reason, labels in by_reason.items()]
    return [*decided, *notes]


def tex(text: str) -> str:
    if re.fullmatch(r"-\d+(\.\d+)?", text):
        text = f"−{text[1:]}"  # a minus sign instead of a hyphen
    quoted = re.sub(r'"([^"]*)"', r"“\1”", text)
    return "".join(_TEX.get(sign, sign) for sign in quoted)


def _text(cell: str | float | None) -> str:
    return NOTHING if cell is None else cell if isinstance(cell, str) else f"{cell:.2f}"


def _joined(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
