"""Finding the pictures of a gallery: folders, globs, lists, tables with metadata columns."""

from __future__ import annotations

import csv
import glob
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.images import looks_like_picture

PATH_COLUMNS = ("path", "image", "file", "filename")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_LISTS = (".txt", ".list")


@dataclass(frozen=True)
class Candidate:
    """A file that may be a picture of the gallery."""

    id: str
    path: str  # absolute
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Found:
    """What a look at the sources gave."""

    candidates: list[Candidate] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # files beside the pictures that are none


def resolve(source: str | Path) -> str:
    """A source as it is remembered: absolute, so that a later sync from another folder finds it again."""
    return os.path.abspath(os.path.expanduser(str(source)))


def find(sources: Iterable[str]) -> Found:
    """All candidates in a stable order; each file once; ids unique."""
    found = Found()
    by_path: dict[str, int] = {}
    taken: set[str] = set()
    for source in sources:
        for candidate in _expand(source, found.skipped):
            if candidate.path in by_path:  # the same file from two sources: the later one's metadata wins
                index = by_path[candidate.path]
                before = found.candidates[index]
                merged = {**before.metadata, **candidate.metadata}
                found.candidates[index] = Candidate(before.id, before.path, merged)
                continue
            unique = _unique_id(candidate, source, taken)
            by_path[candidate.path] = len(found.candidates)
            taken.add(unique)
            found.candidates.append(Candidate(unique, candidate.path, candidate.metadata))
    return found


def _expand(source: str, skipped: list[str]) -> Iterator[Candidate]:
    path = Path(source)
    if path.is_dir():
        yield from _folder(path, skipped)
    elif path.is_file():
        if path.suffix.lower() in _TABLES:
            yield from _table(path)
        elif path.suffix.lower() in _LISTS:
            yield from _list(path)
        else:
            yield Candidate(path.name, str(path))
    elif glob.has_magic(source):
        matches = sorted(match for match in glob.glob(source, recursive=True) if os.path.isfile(match))
        if not matches:
            raise BadInput(f"no file matches {source!r}")
        root = os.path.commonpath([os.path.dirname(match) for match in matches])
        for match in matches:
            yield Candidate(Path(match).relative_to(root).as_posix(), match)
    else:
        raise BadInput(f"there is no file or folder {source!r}: check the path")


def _folder(root: Path, skipped: list[str]) -> Iterator[Candidate]:
    # os.walk does not follow links to folders: a loop of links never ends
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith("."):
                continue
            if not _is_utf8(str(path)):  # the catalogue stores paths as text
                skipped.append(ascii(str(path)))
            elif looks_like_picture(path):
                yield Candidate(path.relative_to(root).as_posix(), str(path))
            else:
                skipped.append(str(path))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _list(path: Path) -> Iterator[Candidate]:
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        if line.strip():
            yield _row({"path": line.strip()}, path, number)


def _table(path: Path) -> Iterator[Candidate]:
    text = _read_text(path)
    if path.suffix.lower() in (".csv", ".tsv"):
        reader = csv.DictReader(text.splitlines(), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        for number, row in enumerate(reader, 2):
            if None in row:
                raise BadInput(f"{path}, line {number}: more values than columns")
            yield _row({key: _number(value) for key, value in row.items() if value not in (None, "")}, path, number)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: not valid JSON ({error})") from None
        if not isinstance(row, dict):
            raise BadInput(f"{path}, line {number}: a line must be a JSON object with a path")
        yield _row(row, path, number)


def _row(row: dict[str, Any], table: Path, number: int) -> Candidate:
    column = next((name for name in PATH_COLUMNS if row.get(name)), None)
    if column is None:
        raise BadInput(f"{table}, line {number}: no path; name a column one of {', '.join(PATH_COLUMNS)}")
    given = str(row[column])
    absolute = os.path.normpath(os.path.join(table.parent, os.path.expanduser(given)))
    metadata = {key: value for key, value in row.items() if key not in (column, "id")}
    return Candidate(str(row.get("id") or given), absolute, metadata)


def _number(text: str) -> str | int | float:
    """A cell of a CSV as the number it plainly is; codes such as 007 stay text."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text:
            return value
    return text


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def _unique_id(candidate: Candidate, source: str, taken: set[str]) -> str:
    """Two folders may hold the same names: the second one's ids begin with its folder's name, or with the path."""
    for name in (candidate.id, f"{Path(source).name}/{candidate.id}", candidate.path):
        if name not in taken:
            return name
    raise BadInput(f"two pictures have the id {candidate.id!r}: give each its own in the id column")
