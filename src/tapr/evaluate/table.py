"""A table, written as Markdown, LaTeX and CSV: the best value of a column is bold, and notes stand below."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tapr.utils.files import write_atomically

OFFLINE = "†"  # marks a method that uses text from the offline captioner
OURS = "*"  # marks a method for which we had to decide something ourselves
MULTI_PASS = "‡"  # marks a method that asks a language model about pictures of the gallery
NOTHING = "–"  # a cell without a value
_WIDE = 54  # width in characters from which a LaTeX table spans both columns
_WIDEST = 104  # width from which it is set in a smaller font
_GAP = 2  # width of the space between two columns, in characters
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?$")
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "–": "--", "−": "$-$",
    OFFLINE: r"\dag{}", MULTI_PASS: r"\ddag{}", "×": r"$\times$", "✓": r"$\surd$", "θ": r"$\theta$", "τ": r"$\tau$",
    "“": "``", "”": "''", '"': "''",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of text with a title and notes."""

    name: str  # file name
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()  # columns whose highest figure is printed bold, and the second underlined
    blocks: tuple[int, ...] = ()  # rows before which a line is drawn; the best is sought between two lines
    words: int = 1  # columns at the left that hold words
    spans: tuple[tuple[str, int], ...] = ()  # (dataset, columns of it) from the left; "" spans words
    telling: tuple[str, ...] = ()  # columns that a narrow screen shows before the others
    label: str = ""  # in LaTeX, where the tables of several runs stand in one document; else its name

    def markdown(self) -> str:
        marks = ["---"] * self.words + ["---:"] * (len(self.columns) - self.words)
        lines = [f"### {self.title}", "", _line(self.columns), _line(marks)]
        best, second = self.best(), self.second()
        for place, row in enumerate(self.rows):
            cells = list(row)
            for column, cell in enumerate(row):
                if (place, column) in best:
                    cells[column] = f"**{cell}**"
                elif (place, column) in second:
                    cells[column] = f"<u>{cell}</u>"
            lines.append(_line(cells))
        lines += ["", *(f"{_escaped(note)}  " for note in self.notes)]
        return "\n".join(lines).rstrip() + "\n"

    def latex(self) -> str:
        """For \\usepackage{booktabs}; the notes stand under the rules, in the table."""
        best, second, lines = self.best(), self.second(), []
        for place, row in enumerate(self.rows):
            if place in self.blocks:
                lines.append(r"    \midrule")
            cells = [tex(cell) for cell in row]
            for column in range(len(row)):
                if (place, column) in best:
                    cells[column] = rf"\textbf{{{cells[column]}}}"
                elif (place, column) in second:
                    cells[column] = rf"\underline{{{cells[column]}}}"
            lines.append("    " + " & ".join(cells) + r" \\")
        kind = "table*" if self._across() > _WIDE else "table"
        size, gap = (r"\scriptsize", 1.5) if self._across() > _WIDEST else (r"\footnotesize", 3)
        shape = "l" * self.words + "r" * (len(self.columns) - self.words)
        notes = "\n".join(f"    {tex(note)}\\par" for note in self.notes)
        under = f"  \\par\\smallskip\n  \\begin{{minipage}}{{\\linewidth}}\\scriptsize\n{notes}\n  \\end{{minipage}}\n"
        return (
            f"% \\usepackage{{booktabs}}\n\\begin{{{kind}}}[t]\n  \\centering{size}\n"
            f"  \\caption{{{tex(self.title)}}}\n  \\label{{tab:{self.label or self.name}}}\n"
            f"  \\setlength{{\\tabcolsep}}{{{gap}pt}}\n"
            f"  \\begin{{tabular}}{{@{{}}{shape}@{{}}}}\n    \\toprule\n"
            f"{self._tex_head()}    \\midrule\n"
            + "\n".join(lines)
            + f"\n    \\bottomrule\n  \\end{{tabular}}\n{under if notes else ''}\\end{{{kind}}}\n"
        )

    def _across(self) -> int:
        """How many signs its rows are wide, about; titles lose the name of the dataset that stands over them."""
        titles = [column.split()[-1] if self.spans else column for column in self.columns[self.words :]]
        rows = [(*self.columns[: self.words], *titles), *self.rows]
        return sum(max(len(row[place]) for row in rows) for place in range(len(self.columns))) + _GAP * len(
            self.columns
        )

    def _tex_head(self) -> str:
        """One row of titles; where columns belong to datasets, these stand over them."""
        above, lines, first = [], [], 0
        titles: list[str] = []
        for span, count in self.spans or (("", len(self.columns)),):
            above.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(span)}}}" if span else " & " * (count - 1))
            lines += [rf"\cmidrule(lr){{{first + 1}-{first + count}}}"] if span else []
            titles += [tex(column.removeprefix(f"{span} ")) for column in self.columns[first : first + count]]
            first += count
        over = f"    {' & '.join(above)} \\\\\n    {''.join(lines)}\n" if self.spans else ""
        return f"{over}    {' & '.join(titles)} \\\\\n"

    def narrowed(self, width: int) -> tuple[Table, tuple[str, ...]]:
        """As many columns as fit into so many signs, the telling ones first; and the names of those left out."""

        def wide(column: int) -> int:
            return max(len(row[column]) for row in (self.columns, *self.rows)) + _GAP

        by_weight = [self.columns.index(name) for name in self.telling if name in self.columns]
        words = list(range(self.words))
        rest = [place for place in range(self.words, len(self.columns)) if place not in by_weight]
        kept, used = words, sum(map(wide, words))
        for place in (*by_weight, *rest):
            if used + wide(place) > width:
                break
            kept, used = [*kept, place], used + wide(place)
        kept = sorted(kept)
        left_out = tuple(name for place, name in enumerate(self.columns) if place not in kept)
        columns = tuple(self.columns[place] for place in kept)
        rows = tuple(tuple(row[place] for place in kept) for row in self.rows)
        compared = tuple(name for name in self.compared if name in columns)
        return replace(self, columns=columns, rows=rows, compared=compared, spans=()), left_out

    def csv(self) -> str:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([self.columns, *self.rows])
        return buffer.getvalue()

    def best(self) -> frozenset[tuple[int, int]]:
        """(row, column) of every highest figure; equal ones all."""
        return self._placed(0)

    def second(self) -> frozenset[tuple[int, int]]:
        """(row, column) of every second highest figure, where there are three different ones or more."""
        return self._placed(1, least=3)

    def _placed(self, rank: int, least: int = 1) -> frozenset[tuple[int, int]]:
        edges = [0, *self.blocks, len(self.rows)]
        found = set()
        for column in (self.columns.index(name) for name in self.compared):
            for start, stop in pairwise(edges):
                figures = {
                    place: float(self.rows[place][column])
                    for place in range(start, stop)
                    if _NUMBER.match(self.rows[place][column])
                }
                values = sorted(set(figures.values()), reverse=True)
                if len(figures) > 1 and len(values) >= max(least, rank + 1):
                    found |= {(place, column) for place, value in figures.items() if value == values[rank]}
        return frozenset(found)


def write_tables_to(folder: Path, tables: Sequence[Table], name: str, otherwise: str = "") -> list[Path]:
    """Write NAME.md with all tables, and a .tex and a .csv file per table."""
    texts = {f"{name}.md": "\n".join(table.markdown() for table in tables) or otherwise}
    for table in tables:
        texts |= {f"{table.name}.tex": table.latex(), f"{table.name}.csv": table.csv()}
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_atomically(folder / file, text.encode())
    return [folder / file for file in texts]


def offline_note(marks: Iterable[bool]) -> tuple[str, ...]:
    """The meaning of the mark, if a row has it."""
    return (_OFFLINE_NOTE,) if any(marks) else ()


def marks_of(row: Mapping[str, Any], ours: bool = True) -> str:
    """The marks after a method's label. (Runs of version 0.1 have no "offline" field.)"""
    said = ((OURS, ours and row["ours"]), (OFFLINE, row.get("offline")), (MULTI_PASS, row.get("multi_pass")))
    return "".join(f" {mark}" for mark, applies in said if applies)


def multi_pass_note(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the rows of several passes cost, and that the paper compares none."""
    said = []
    for row in rows:
        cost = row.get("multi_pass")
        if not cost:
            continue
        failed = len(cost["kept_first_order"])
        kept = f"; {failed:,} queries keep the first order, for want of a valid answer" if failed else ""
        said.append(
            f"{MULTI_PASS} {row['label']}: multi-pass, which the paper's comparison leaves out. {cost['model']} looked "
            f"at the first {cost['top']} pictures of each query again: {cost['calls']:,} requests, "
            f"{calls_per_query(row)} per query, {cost['tokens_in']:,} tokens read and {cost['tokens_out']:,} "
            f"written{kept}. Rsubset is that of the first pass."
        )
    return said


def calls_per_query(row: Mapping[str, Any]) -> str:
    cost = row.get("multi_pass")
    return f"{cost['calls'] / cost['queries']:.1f}" if cost else NOTHING


def ours_note(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence per decision of our own, with the methods that share it."""
    by_reason: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["ours"]:
            by_reason.setdefault(row["ours"], {})[row["label"]] = None
    return [f"{OURS} {'; '.join(labels)}, decided here: {reason}." for reason, labels in by_reason.items()]


_OFFLINE_NOTE = (
    f"{OFFLINE} offline captioner: the captions of references that it reads, and these with the edit applied, come "
    "from the built-in captioner and caption editor, not from a language model."
)


def figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def tex(text: str) -> str:
    if _NUMBER.match(text) and text.startswith("-"):
        text = f"−{text[1:]}"  # a minus sign instead of a hyphen
    quoted = re.sub(r'"([^"]*)"', r"“\1”", text)
    return "".join(_TEX.get(sign, sign) for sign in quoted)


def _escaped(note: str) -> str:
    return f"\\{note}" if note.startswith(OURS) else note


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
