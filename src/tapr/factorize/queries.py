"""A file of queries, one JSON line each: `tapr eval --export-queries` writes it, `tapr factorize --batch` reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tapr.errors import BadInput
from tapr.factorize.records import RecordedQuestion
from tapr.utils.files import write_atomically
from tapr.utils.json_text import parse_json
from tapr.utils.lines import lines_of

_NEEDED = ("id", "reference", "edit")
_SET = ("dataset", "split")


class BadQueries(BadInput):
    """A file of queries that cannot be read."""

    code = "bad_queries"


@dataclass(frozen=True)
class BatchQuery:
    """One line: {"id": ..., "reference": path, "edit": ...}, and of a benchmark's query "dataset" and "split"."""

    id: str
    reference: Path
    edit: str
    dataset: str = ""
    split: str = ""

    def question(self, image: str | None) -> RecordedQuestion:
        """Return the question. `image`: sha256 of the reference, where it is known."""
        return RecordedQuestion(self.edit, image, self.dataset, self.split)


def read_queries(path: str | Path) -> list[BatchQuery]:
    """Read a file of queries: pictures' paths are relative to its folder; ids must differ within a dataset's split."""
    path = Path(path)
    try:
        lines = lines_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadQueries(f"cannot read the queries {str(path)!r}: {reason}") from None
    queries: dict[tuple[str, str, str], BatchQuery] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            query = _query(line, path.parent)
        except BadQueries as error:
            raise BadQueries(f"{path}, line {number}: {error}") from None
        key = query.dataset, query.split, query.id
        if key in queries:
            raise BadQueries(f"{path}, line {number}: the id {query.id!r} stands for another query already")
        queries[key] = query
    if not queries:
        raise BadQueries(f"{path} holds no queries")
    return list(queries.values())


def write_queries(path: str | Path, queries: Iterable[BatchQuery]) -> None:
    path = Path(path)
    lines = "".join(json.dumps(_row(query, path.parent), ensure_ascii=False) + "\n" for query in queries)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lines.encode())
    except OSError as error:
        what = f"cannot write the queries to {str(path)!r}: {error.strerror}"
        raise BadQueries(what, code="not_written") from None


def _row(query: BatchQuery, folder: Path) -> dict[str, str]:
    row = {"id": query.id, "reference": _relative(query.reference, folder), "edit": query.edit}
    return row | {name: value for name in _SET if (value := getattr(query, name))}


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.resolve().as_posix()


def _query(line: str, folder: Path) -> BatchQuery:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise BadQueries(f"not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadQueries(f"a query is an object with {', '.join(_NEEDED)}")
    if isinstance(value.get("id"), int):
        value["id"] = str(value["id"])
    for name in _NEEDED:
        # a benchmark may hold a blank edit: that query is no reason to refuse the others
        if not isinstance(value.get(name), str) or not (value[name].strip() or name == "edit"):
            raise BadQueries(f"the query has no {name}: give it as text")
    for name in _SET:
        if not isinstance(value.get(name, ""), str):
            raise BadQueries(f"the query's {name} is not text")
    named = {name: value.get(name, "") for name in _SET}
    return BatchQuery(value["id"], folder / value["reference"], value["edit"], **named)
