"""Spans of a search, and that nothing is loaded where they are not wanted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.server import traces
from tests.pictures import flag, png
from tests.server.conftest import client_of

_inside: ContextVar[str] = ContextVar("inside", default="")


class Tracer:
    """Notes each span with the one it is inside of."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str]] = []

    @contextmanager
    def start_as_current_span(self, name: str, attributes: dict[str, Any]) -> Iterator[None]:
        self.spans.append((name, _inside.get()))
        token = _inside.set(name)
        yield
        _inside.reset(token)

    def start_span(self, name: str, attributes: dict[str, Any], start_time: int) -> Tracer:
        self.spans.append((name, _inside.get()))
        return self

    def end(self, now: int) -> None:
        pass


def test_a_search_has_its_steps_as_children(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer()
    with client_of(gallery) as client:
        monkeypatch.setattr(traces, "_tracer", tracer)
        reply = client.post("/api/search", files={"reference": png(flag("red"))}, data={"edit": "blue"})
    assert reply.status_code == 200
    request = "POST request"
    assert tracer.spans == [
        (request, ""), ("encode", request), ("factorize", request), ("match", request), ("explain", request),
    ]  # fmt: skip


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BadInput, match=r"spans need opentelemetry.*: pip install 'tapr-cir\[otel\]'"):
        traces.begin()


def test_nothing_is_loaded_without_the_option() -> None:
    """FastAPI looks for the API by itself; what makes and sends spans is not loaded."""
    code = "import sys, tapr.server.app, tapr.cli.serve; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
