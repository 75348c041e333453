"""`--where`: a small filter language over metadata, turned into SQL with every name and value as a parameter.

class = 'dress' and price < 40
colour in ('red', 'blue') or not (year >= 2020)
path like '%/summer/%' and brand is not null
"""

from __future__ import annotations

import re
from typing import Any

from tapr.errors import BadInput

BUILT_IN = ("id", "path", "width", "height", "size")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)(?![\w.])|(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")"
    r"|(?P<name>[^\W\d][\w.\-]*)|(?P<sign><=|>=|!=|<>|==|[=<>(),]))"
)
_KEYWORDS = {"and", "or", "not", "in", "is", "null", "like", "true", "false"}
_MAX_DEPTH = 50


def to_sql(text: str) -> tuple[str, list[Any]]:
    """-> an SQL condition holding only `?`, keywords and column names of ours, and its parameters."""
    parser = _Parser(text)
    condition = parser.any_of()
    if parser.kind:
        raise parser.error("expected and, or, or the end")
    return condition, parser.parameters


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.parameters, self._depth = text, [], 0  # type: tuple[str, list[Any], int]
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

    def error(self, expected: str) -> BadInput:
        place = repr(self.value) if self.kind else "the end"
        return BadInput(
            f"cannot read the filter {self.text!r} at {place}: {expected}; write it like class = 'dress' and price < 40"
        )

    def _comparison(self) -> str:
        column = self._column()
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            return f"{column} IS {'NOT ' if negated else ''}NULL"
        negated = self._take("not")
        if self._take("like"):
            return f"{column} {'NOT ' if negated else ''}LIKE {self._value()}"
        if self._take("in"):
            self._expect("(")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._expect(")")
            return f"{column} {'NOT ' if negated else ''}IN ({', '.join(values)})"
        if negated:
            raise self.error("expected like or in after not")
        for sign in ("=", "==", "!=", "<>", "<=", ">=", "<", ">"):
            if self._take(sign):
                return f"{column} {sign} {self._value()}"
        raise self.error("expected a comparison (= != < <= > >= like in is)")

    def _column(self) -> str:
        if self.kind not in ("name", "quoted") or (self.kind == "name" and self.value.lower() in _KEYWORDS):
            raise self.error("expected a column name")
        name = self.value
        self._next()
        if name in BUILT_IN:
            return name
        self.parameters.append(name)
        return "(SELECT value FROM json_each(metadata) WHERE key = ?)"

    def _value(self) -> str:
        value: Any = self.value
        if self.kind == "number":
            value = float(value) if "." in value else int(value)
        elif self.kind == "name" and value.lower() in ("true", "false"):
            value = value.lower() == "true"
        elif self.kind != "text":
            raise self.error("expected a number or a text in single quotes")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise self.error("the number is too large")
        self._next()
        self.parameters.append(value)
        return "?"

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
