"""Log output: text for people, or one JSON object per line for machines."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

REQUEST_HEADER = "X-Request-Id"
_GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")  # safe in a header and in a log line
_request: ContextVar[str] = ContextVar("request", default="")


def begin_request(given: str | None) -> str:
    """Start a request: use the client's request id if it is safe, otherwise a new one. Log lines then carry it."""
    name = given if given is not None and _GIVEN.fullmatch(given) else secrets.token_hex(8)
    _request.set(name)
    return name


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        request = _request.get()
        return f"{super().format(record)} [{request}]" if request else super().format(record)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if _request.get():
            line["request_id"] = _request.get()
        return json.dumps(line | getattr(record, "fields", {}))


def configure(requests: bool, as_json: bool) -> None:
    """Log to stderr; `requests`: every request, otherwise only problems."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("tapr.server").setLevel(logging.INFO if requests else logging.WARNING)
