"""The columns of a gallery's metadata and their types: what a cell may hold, and how it is compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, get_args

from tapr.errors import BadInput

ColumnType = Literal["number", "boolean", "date", "text"]
COLUMN_TYPES: tuple[ColumnType, ...] = get_args(ColumnType)
AUTO = "auto"  # withdraws a declared type
Value = str | int | float | bool
Cell = str | int | float  # as the catalogue stores and compares it

# 007 and +49 are codes, not numbers; more than 18 digits would lose some
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d+)?(?:[eE][+-]?\d{1,3})?|-?\.\d+")
_NOT_FINITE = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_SHOWN = 40  # longest quoted cell


@dataclass(frozen=True)
class Column:
    name: str
    type: ColumnType
    declared: bool = False  # by the user; otherwise inferred from all values
    note: str = ""  # why the type is text although most values are not


class NotOfType(ValueError):
    """A cell that its column's declared type does not allow."""


def declared_type(name: str, type_: str) -> ColumnType:
    for known in COLUMN_TYPES:
        if type_ == known:
            return known
    raise BadInput(f"the column {name!r} cannot be a {type_!r}: choose {', '.join(COLUMN_TYPES)}")


def as_declared(value: Any, type_: ColumnType) -> Value | None:
    """Convert a value to its column's declared type; None for an empty cell."""
    if value is None or _is_no_number(value, type_):
        return None
    if type_ == "text":
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        converted = _from_text(value.strip(), type_)
    elif type_ == "boolean":
        converted = value if isinstance(value, bool) else None
    else:
        converted = value if type_ == "number" and _is_number(value) else None
    if converted is None:
        raise NotOfType(f"{quoted(value)} is not a {type_}")
    return converted


def column_of_texts(texts: Sequence[str]) -> list[Value | None]:
    """Infer types for the cells of a CSV column: numbers or booleans if all are, otherwise text."""
    for type_ in ("number", "boolean"):
        values = [_from_text(text.strip(), type_) for text in texts]
        if any(value is not None for value in values) and all(
            value is not None or _is_no_number(text, type_) for value, text in zip(values, texts, strict=True)
        ):
            return values
    return list(texts)


def cell(value: Any, type_: ColumnType) -> Cell | None:
    """The form in which filters compare a stored value. Values that do not fit the column's type count as empty."""
    if type_ == "text":
        return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)
    if type_ == "date":
        return comparable_date(value) if isinstance(value, str) else None
    if type_ == "boolean":
        return int(value) if isinstance(value, bool) else None
    number: Any = _from_text(value.strip(), "number") if isinstance(value, str) else value
    if not _is_number(number) or isinstance(number, float) or abs(number) < 2**63:
        return number if _is_number(number) else None
    return _as_float(number)


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:  # larger than any float: compared as infinity
        return math.inf if number > 0 else -math.inf


@lru_cache(4096)  # a column of dates has few different ones
def comparable_date(text: str) -> str | None:
    """A date or time as sortable text: a date is its first moment, a time with a zone is converted to UTC."""
    if not _DATE.fullmatch(text.strip()):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # such as the 31st of February
        return None
    return moment.isoformat()


def plural(type_: ColumnType) -> str:
    return {"number": "numbers", "boolean": "true or false", "date": "dates", "text": "text"}[type_]


def quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def type_of(value: Any) -> ColumnType:
    if isinstance(value, bool):
        return "boolean"
    if _is_number(value):
        return "number"
    return "date" if isinstance(value, str) and comparable_date(value) is not None else "text"


def look_of(text: str) -> ColumnType:
    """The type that a text looks like."""
    if _from_text(text.strip(), "number") is not None:
        return "number"
    return "text" if _from_text(text.strip(), "boolean") is None else "boolean"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_no_number(value: Any, type_: str) -> bool:
    """nan and inf, in a column of numbers, are empty cells."""
    if isinstance(value, float):
        return not math.isfinite(value)
    return type_ == "number" and isinstance(value, str) and value.strip().lower() in _NOT_FINITE


def _from_text(text: str, type_: str) -> Value | None:
    if type_ == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    if type_ == "date":
        return text if comparable_date(text) is not None else None
    if not _NUMBER.fullmatch(text):
        return None
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return float(text) if math.isfinite(float(text)) else None
