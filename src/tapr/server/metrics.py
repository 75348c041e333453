"""Counters and timings in the text format of Prometheus."""

from __future__ import annotations

import bisect
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from threading import Lock

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds


class Metrics:
    """Counters of a server, per gallery where possible. `gauges` are read when metrics are requested."""

    def __init__(self) -> None:
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}  # name -> (help, value)
        self.gallery_gauges: dict[str, tuple[str, Callable[[], Mapping[str, float]]]] = {}  # (help, gallery -> value)
        self._lock = Lock()
        self._started = time.time()
        self._requests: Counter[tuple[str, str, str, int]] = Counter()  # gallery, method, route, status
        # (gallery, route) -> counts per bucket; the last one is above all limits
        self._times: dict[tuple[str, str], list[int]] = {}
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._sweeps: Counter[str] = Counter()  # per gallery
        self._swept: Counter[str] = Counter()
        self._snapshots: Counter[str] = Counter()
        self._orders: Counter[str] = Counter()

    def request(self, gallery: str, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. `gallery` is empty for requests outside any gallery, such as the page."""
        with self._lock:
            self._requests[gallery, method, route, status] += 1
            counts = self._times.setdefault((gallery, route), [0] * (len(BUCKETS) + 1))
            counts[bisect.bisect_left(BUCKETS, seconds)] += 1
            self._seconds[gallery, route] += seconds

    def sweep(self, gallery: str, queries: int) -> None:
        with self._lock:
            self._sweeps[gallery] += 1
            self._swept[gallery] += queries

    def snapshot(self, gallery: str, operations: int) -> None:
        with self._lock:
            self._snapshots[gallery] += 1
            self._orders[gallery] += operations

    def text(self, galleries: Container[str]) -> str:
        """The metrics of the galleries that the client may read. Others are not even named."""
        told = _Scrape(galleries)
        with self._lock:
            lines = [*self._request_lines(told), *self._time_lines(told)]
            for name, help_, counts in (
                ("tapr_sweeps_total", "Passes over the bank.", self._sweeps),
                ("tapr_swept_queries_total", "Queries in them.", self._swept),
                ("tapr_snapshots_total", "Snapshots written by this server.", self._snapshots),
                ("tapr_write_operations_total", "Puts and deletes in them.", self._orders),
            ):
                lines += _family(name, "counter", help_, told.by_gallery(counts))
        for name, (help_, values) in self.gallery_gauges.items():
            lines += _family(name, "gauge", help_, told.by_gallery(values()))
        for name, (help_, value) in self.gauges.items():
            lines += _family(name, "gauge", help_, {"": value()})
        resident = resident_bytes()
        if resident is not None:
            lines += _family("process_resident_memory_bytes", "gauge", "Memory in use.", {"": resident})
        lines += _family("process_start_time_seconds", "gauge", "When the server started.", {"": self._started})
        return "\n".join(lines) + "\n"

    def _request_lines(self, told: _Scrape) -> list[str]:
        values = {
            _labels(method=method, route=route, status=status, gallery=gallery): float(count)
            for (gallery, method, route, status), count in sorted(self._requests.items())
            if gallery in told
        }
        return _family("tapr_requests_total", "counter", "Answers by route and status.", values)

    def _time_lines(self, told: _Scrape) -> list[str]:
        name = "tapr_request_seconds"
        lines = [f"# HELP {name} Time to answer.", f"# TYPE {name} histogram"]
        for (gallery, route), counts in sorted(self._times.items()):
            if gallery not in told:
                continue
            total = 0
            for limit, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f"{name}_bucket{_labels(route=route, gallery=gallery, le=limit)} {total}")
            labels = _labels(route=route, gallery=gallery)
            lines.append(f"{name}_sum{labels} {self._seconds[gallery, route]:.6f}")
            lines.append(f"{name}_count{labels} {total}")
        return lines


class _Scrape:
    """Formats metrics for a client that may read these galleries."""

    def __init__(self, galleries: Container[str]) -> None:
        self._galleries = galleries

    def __contains__(self, gallery: str) -> bool:
        return not gallery or gallery in self._galleries

    def by_gallery(self, values: Mapping[str, float]) -> dict[str, float]:
        return {_labels(gallery=name): value for name, value in values.items() if name in self}


def resident_bytes() -> int | None:
    """Memory in use on Linux; elsewhere the peak; None if neither is known (Windows)."""
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
    return most if sys.platform == "darwin" else most * 1024  # macOS reports bytes, others kilobytes


def _family(name: str, kind: str, help_: str, values: Mapping[str, float]) -> list[str]:
    lines = [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
    return lines + [f"{name}{labels} {value:.15g}" for labels, value in values.items()]


def _labels(**values: object) -> str:
    """Empty labels are left out, which means the same to Prometheus."""
    pairs = [f'{name}="{_escape(str(value))}"' for name, value in values.items() if value != ""]
    return f"{{{','.join(pairs)}}}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
