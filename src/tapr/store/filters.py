"""`--where`: a small filter language over a gallery's columns, turned into SQL. docs/where.md describes it.

class = 'dress' and price < 40
colour in ('red', 'blue') or not (year >= 2020)
name contains 'summer' and since between '2024-05-01' and '2024-08-31' and brand is not null
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from tapr.errors import BadFilter
from tapr.store.columns import ColumnType, comparable_date, plural

# columns that every picture has besides its metadata; each is a column of the table `images`
BUILT_IN: Mapping[str, ColumnType] = {
    "id": "text",
    "path": "text",
    "width": "number",
    "height": "number",
    "size": "number",
    "caption": "text",
}
OWN = "picture."  # picture.width is the built-in column, also where the metadata has a width

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>\"(?:[^\"]|\"\")*\")|(?P<name>[^\W\d][\w.\-]*)|(?P<sign><=|>=|!=|<>|==|[=<>(),]))"
)
_NAMES = ("name", "quoted")
_KEYWORDS = {"and", "or", "not", "in", "is", "null", "like", "contains", "between", "true", "false"}
_SIGNS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<=": "<=", ">=": ">=", "<": "<", ">": ">"}
_MAX_DEPTH = 50
_SHOWN = 30  # most columns that an error lists
_WRITE = {
    "number": "write a number without quotes, such as 40",
    "boolean": "write true or false, without quotes",
    "date": "write a date in single quotes, such as '2024-05-31' or '2024-05-31 14:30'",
    "text": "write a text in single quotes, such as 'dress'",
}


def to_sql(
    text: str, metadata: Mapping[str, ColumnType], built_in: Mapping[str, ColumnType] = BUILT_IN
) -> tuple[str, list[Any]]:
    """-> an SQL condition holding only `?`, keywords and column names of ours, and its parameters."""
    if text.encode(errors="replace").decode() != text:
        raise BadFilter("cannot read the filter: it holds half of a surrogate pair, which is no text")
    parser = _Parser(text, metadata, built_in)
    condition = parser.any_of()
    if parser.kind:
        raise parser.error("expected and, or, or the end")
    return condition, parser.parameters


def contains(value: str | None, part: str) -> bool | None:
    """The SQL function `contains`: case-insensitive, in every script."""
    return None if value is None else part.casefold() in value.casefold()


def names_in(text: str) -> set[str]:
    """All names in a filter: columns and keywords."""
    return {match.group(kind).strip('"') for match in _TOKEN.finditer(text) if (kind := match.lastgroup) in _NAMES}


class _Column:
    def __init__(self, name: str, type_: ColumnType, sql: str) -> None:
        self.name, self.type, self.sql = name, type_, sql


class _Parser:
    def __init__(self, text: str, metadata: Mapping[str, ColumnType], built_in: Mapping[str, ColumnType]) -> None:
        self.text, self.parameters, self._depth = text, [], 0  # type: tuple[str, list[Any], int]
        self._metadata, self._built_in = metadata, built_in
        self._position = 0
        self._next()

    def any_of(self) -> str:
        parts = [self.all_of()]
        while self._take("or"):
            parts.append(self.all_of())
        return f"({' OR '.join(parts)})"

    def all_of(self) -> str:
        parts = [self.one()]
        while self._take("and"):
            parts.append(self.one())
        return f"({' AND '.join(parts)})"

    def one(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error("nested too deeply")
        try:
            if self._take("not"):
                return f"(NOT {self.one()})"
            if self._take("("):
                inner = self.any_of()
                self._expect(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def error(self, expected: str) -> BadFilter:
        place = repr(self.value) if self.kind else "the end"
        return BadFilter(
            f"cannot read the filter {self.text!r} at {place}: {expected}; write it like class = 'dress' and price < 40"
        )

    def _comparison(self) -> str:
        column = self._column()
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            return f"{column.sql} IS {'NOT ' if negated else ''}NULL"
        negation = "NOT " if self._take("not") else ""
        if self._take("like"):
            return f"{column.sql} {negation}LIKE {self._text_value(column, 'like')}"
        if self._take("contains"):
            return f"({negation}contains({column.sql}, {self._text_value(column, 'contains')}))"
        if self._take("in"):
            self._expect("(")
            values = [self._value(column)]
            while self._take(","):
                values.append(self._value(column))
            self._expect(")")
            return f"{column.sql} {negation}IN ({', '.join(values)})"
        if self._take("between"):
            self._refuse_order(column, "between")
            low = self._value(column)
            self._expect("and")
            return f"{column.sql} {negation}BETWEEN {low} AND {self._value(column)}"
        if negation:
            raise self.error("expected in, contains, like or between after not")
        for sign, sql in _SIGNS.items():
            if self._take(sign):
                if sql not in ("=", "<>"):
                    self._refuse_order(column, sign)
                return f"{column.sql} {sql} {self._value(column)}"
        raise self.error("expected a comparison (= != < <= > >= in contains between like is)")

    def _column(self) -> _Column:
        if self.kind not in ("name", "quoted") or (self.kind == "name" and self.value.lower() in _KEYWORDS):
            raise self.error("expected a column name")
        name = self.value
        own = name.removeprefix(OWN)
        if name in self._metadata and (own == name or own not in self._built_in):
            column = _Column(
                name, self._metadata[name], "(SELECT value FROM cells WHERE key = images.key AND name = ?)"
            )
            self.parameters.append(name)
        elif own in self._built_in:
            column = _Column(name, self._built_in[own], f"images.{own}")
        else:
            self._refuse_name(name)
        self._next()
        return column

    def _value(self, column: _Column) -> str:
        value: Any = self.value
        kind: ColumnType
        if self.kind == "number":
            kind, value = "number", float(value) if re.search(r"[.eE]", value) or len(value) > 400 else int(value)
        elif self.kind == "name" and value.lower() in ("true", "false"):
            kind, value = "boolean", value.lower() == "true"
        elif self.kind == "text":
            kind = "date" if column.type == "date" and comparable_date(value) is not None else "text"
        elif self.kind == "quoted":
            raise self.error("double quotes are for names of columns: put a text in single quotes")
        else:
            raise self.error("expected a number or a text in single quotes")
        if kind != column.type:
            raise BadFilter(
                f"cannot use the filter {self.text!r}: {column.name} holds {plural(column.type)}, "
                f"so {_WRITE[column.type]}, not {self._as_written()}"
            )
        if isinstance(value, int) and abs(value) >= 2**63:
            raise self.error("the number is too large")
        if isinstance(value, float) and abs(value) == float("inf"):
            raise self.error("the number is too large")
        self._next()
        self.parameters.append(comparable_date(value) if kind == "date" else value)
        return "?"

    def _text_value(self, column: _Column, operator: str) -> str:
        if column.type != "text":
            raise BadFilter(
                f"cannot use the filter {self.text!r}: {operator} looks into texts, and {column.name} holds "
                f"{plural(column.type)}"
            )
        return self._value(column)

    def _refuse_order(self, column: _Column, sign: str) -> None:
        if column.type == "boolean":
            raise BadFilter(
                f"cannot use the filter {self.text!r}: {column.name} holds true or false, which {sign} does not "
                f"order: write {column.name} = true"
            )

    def _refuse_name(self, name: str) -> NoReturn:
        known = [*sorted(self._metadata), *(own for own in self._built_in if own not in self._metadata)]
        near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], n=1)
        meant = next((f"did you mean {one}? " for one in known if near and one.lower() == near[0]), "")
        rest = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        raise BadFilter(
            f"cannot use the filter {self.text!r}: there is no column {name!r}: {meant}"
            f"the columns are {', '.join(known[:_SHOWN])}{rest}"
        )

    def _as_written(self) -> str:
        return "'" + self.value.replace("'", "''") + "'" if self.kind == "text" else self.value

    def _take(self, word: str) -> bool:
        if self.kind in ("name", "sign") and self.value.lower() == word:
            self._next()
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self.error(f"expected {word}")

    def _next(self) -> None:
        if not self.text[self._position :].strip():
            self.kind, self.value = "", ""
            return
        match = _TOKEN.match(self.text, self._position)
        if match is None:
            self.kind, self.value = "unknown", self.text[self._position :].strip()[:20]
            raise self.error("not understood")
        self._position = match.end()
        self.kind = match.lastgroup or ""
        self.value = match.group(self.kind)
        if self.kind == "text":
            self.value = self.value[1:-1].replace("''", "'")
        elif self.kind == "quoted":
            self.value = self.value[1:-1].replace('""', '"')
