"""Counts and times in Prometheus' text format."""

from __future__ import annotations

import bisect
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds


class Metrics:
    """What a server has done; `gauges` are read when someone asks."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None) -> None:
        self.gauges = dict(gauges or {})  # name -> (help, value)
        self._lock = Lock()
        self._started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()  # method, route, status
        self._times: dict[str, list[int]] = {}  # route -> counts by bucket, the last one beyond all
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._sweeps = 0
        self._swept = 0

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[method, route, status] += 1
            counts = self._times.setdefault(route, [0] * (len(BUCKETS) + 1))
            counts[bisect.bisect_left(BUCKETS, seconds)] += 1
            self._seconds[route] += seconds

    def sweep(self, queries: int) -> None:
        with self._lock:
            self._sweeps += 1
            self._swept += queries

    def text(self) -> str:
        with self._lock:
            lines = [*self._request_lines(), *self._time_lines()]
            lines += _family("tapr_sweeps_total", "counter", "Passes over the bank.", {"": self._sweeps})
            lines += _family("tapr_swept_queries_total", "counter", "Queries in them.", {"": self._swept})
        for name, (help_, value) in self.gauges.items():
            lines += _family(name, "gauge", help_, {"": value()})
        resident = resident_bytes()
        if resident is not None:
            lines += _family("process_resident_memory_bytes", "gauge", "Memory in use.", {"": resident})
        lines += _family("process_start_time_seconds", "gauge", "When the server started.", {"": self._started})
        return "\n".join(lines) + "\n"

    def _request_lines(self) -> list[str]:
        values = {
            f'{{method="{_escape(method)}",route="{_escape(route)}",status="{status}"}}': float(count)
            for (method, route, status), count in sorted(self._requests.items())
        }
        return _family("tapr_requests_total", "counter", "Answers by route and status.", values)

    def _time_lines(self) -> list[str]:
        name = "tapr_request_seconds"
        lines = [f"# HELP {name} Time to answer.", f"# TYPE {name} histogram"]
        for route, counts in sorted(self._times.items()):
            label, total = _escape(route), 0
            for limit, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{route="{label}",le="{limit}"}} {total}')
            lines.append(f'{name}_sum{{route="{label}"}} {self._seconds[route]:.6f}')
            lines.append(f'{name}_count{{route="{label}"}} {total}')
        return lines


def resident_bytes() -> int | None:
    """Memory in use now where Linux tells it, else the most there has been; None where neither is told (Windows)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # macOS counts bytes, others kilobytes


def _family(name: str, kind: str, help_: str, values: Mapping[str, float]) -> list[str]:
    lines = [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
    return lines + [f"{name}{labels} {value:.15g}" for labels, value in values.items()]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
