"""OpenTelemetry spans of requests, if the server was started with --otel; otherwise nothing is loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tapr.errors import BadInput
from tapr.utils.extras import install_hint

_tracer: Any = None


def begin(tracer: Any = None) -> None:
    """Start tracing. By default spans are exported over OTLP, as configured by the OTEL_* variables."""
    global _tracer  # noqa: PLW0603 (one per process, set before the first request)
    _tracer = tracer or _exporting()


@contextmanager
def span(name: str, **attributes: str | int | float) -> Iterator[None]:
    """Traces a step of the current request; nested steps become children."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, attributes=attributes):
        yield


def ended(name: str, seconds: float, **attributes: str | int | float) -> None:
    """Add a span for a step that has just ended."""
    if _tracer is not None:
        now = time.time_ns()
        _tracer.start_span(name, attributes=attributes, start_time=now - round(seconds * 1e9)).end(now)


def _exporting() -> Any:
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise BadInput(f"spans need {error.name}: {install_hint('otel')}") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "tapr"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return trace.get_tracer("tapr.server")
