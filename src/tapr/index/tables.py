"""Lists and tables that name pictures: text files, CSV, TSV and JSONL with metadata columns."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.index.ids import id_below
from tapr.store.columns import COLUMN_TYPES, ColumnType, NotOfType, as_declared, column_of_texts, declared_type
from tapr.utils.lines import lines_of

PATH_COLUMNS = ("path", "image", "file", "filename")
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
LISTS = (".txt", ".list")
_LONGEST_CELL = 2**24  # characters; csv's own limit of 128 kB is less than a long description


@dataclass(frozen=True)
class Row:
    """One picture of a table."""

    id: str
    path: str  # absolute
    metadata: dict[str, Any] = field(default_factory=dict)


def read_list(path: Path) -> Iterator[Row]:
    for number, line in enumerate(lines_of(_read_text(path)), 1):
        if line.strip():
            yield _row({"path": line.strip()}, path, number)


def read_table(path: Path, declared: Mapping[str, ColumnType]) -> tuple[list[Row], dict[str, ColumnType]]:
    """-> the rows, their values typed, and the types that the table's own header declares (price:number)."""
    text = _read_text(path)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return [_row(_typed(row, declared, path, line), path, line) for line, row in _json_rows(text, path)], {}
    lines, rows = _csv_rows(text, path)
    header = {name: _header(name) for name in (rows[0] if rows else {})}
    own = {name: type_ for name, type_ in header.values() if type_ is not None}
    declared = {**own, **declared}
    columns = {
        name: _csv_column([row[title] for row in rows], title, declared.get(name), path, lines)
        for title, (name, _) in header.items()
    }
    found = [
        _row({name: values[i] for name, values in columns.items() if values[i] is not None}, path, line)
        for i, line in enumerate(lines)
    ]
    return found, own


def _json_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}: not valid JSON ({error})") from None
        if not isinstance(row, dict):
            raise BadInput(f"{path}, line {number}: a line must be a JSON object with a path")
        yield number, row


def _csv_rows(text: str, path: Path) -> tuple[list[int], list[dict[str, str | None]]]:
    """-> the line each row ends at, and the rows; a quoted cell may hold line breaks."""
    csv.field_size_limit(_LONGEST_CELL)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[int] = []
    rows: list[dict[str, str | None]] = []
    try:
        for row in reader:
            if None in row:
                raise BadInput(f"{path}, line {reader.line_num}: more values than columns")
            lines.append(reader.line_num)
            rows.append(row)
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None
    return lines, rows


def _header(title: str) -> tuple[str, ColumnType | None]:
    """price:number -> price, number; other colons are part of the name."""
    name, colon, type_ = title.rpartition(":")
    return (name, declared_type(name, type_)) if colon and name and type_ in COLUMN_TYPES else (title, None)


def _csv_column(
    cells: list[str | None], title: str, declared: ColumnType | None, path: Path, lines: list[int]
) -> list[Any]:
    filled = [i for i, cell in enumerate(cells) if cell not in (None, "")]
    texts = [str(cells[i]) for i in filled]
    values: list[Any] = [None] * len(cells)
    name = _header(title)[0]
    if declared is None and name not in (*PATH_COLUMNS, "id"):
        typed: list[Any] = list(column_of_texts(texts))
    else:
        typed = [
            _declared(name, text, declared or "text", path, lines[i]) for i, text in zip(filled, texts, strict=True)
        ]
    for i, value in zip(filled, typed, strict=True):
        values[i] = value
    return values


def _typed(row: dict[str, Any], declared: Mapping[str, ColumnType], path: Path, line: int) -> dict[str, Any]:
    """A row of JSON, which has types: only what was declared otherwise is changed. null and NaN are no value."""
    as_said = {
        name: _declared(name, value, declared[name], path, line) if name in declared else value
        for name, value in row.items()
    }
    try:
        finite = {name: _finite(value) for name, value in as_said.items()}
    except RecursionError:
        raise BadInput(f"{path}, line {line}: nested too deeply") from None
    return {name: value for name, value in finite.items() if value is not None}


def _finite(value: Any) -> Any:
    """Inside lists and objects too: JSON knows neither NaN nor infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return value


def _declared(name: str, value: Any, type_: ColumnType, path: Path, line: int) -> Any:
    try:
        return as_declared(value, type_)
    except NotOfType as error:
        raise BadInput(
            f"{path}, line {line}: the column {name!r} is declared a {type_}, and {error}: "
            "correct the cell, leave it empty, or declare the column text"
        ) from None


def _row(row: dict[str, Any], table: Path, number: int) -> Row:
    column = next((name for name in PATH_COLUMNS if row.get(name)), None)
    if column is None:
        raise BadInput(f"{table}, line {number}: no path; name a column one of {', '.join(PATH_COLUMNS)}")
    absolute = os.path.normpath(os.path.join(table.parent, os.path.expanduser(str(row[column]))))
    metadata = {key: value for key, value in row.items() if key not in (column, "id")}
    id_ = row.get("id")
    out = Row(str(id_) if id_ not in (None, "") else id_below(absolute, table.parent), absolute, metadata)
    try:
        json.dumps([out.id, out.path, metadata], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{table}, line {number}: half of a surrogate pair, which is no text: correct the line"
        ) from None
    if "\0" in out.path:
        raise BadInput(f"{table}, line {number}: the path holds a zero character, which no file's name can")
    if "\0" in out.id:
        raise BadInput(f"{table}, line {number}: the id holds a zero character, which no id can: correct the line")
    return out


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # line ends as they are: a CSV cell may hold them
            return file.read()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
