"""Rows of the table of peers: one JSON object each, added to a file as they are finished."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peer_engines import ENGINES

from tapr.utils.threads import thread_count

Row = dict[str, Any]
Key = tuple[Any, ...]
OUT_OF_TIME = "out of time"
HEADS = (
    "pictures", "queries", "system", "setting", "build s (processor s, threads)", "bytes per picture", "memory MB",
    "median ms", "p95 ms", "processor ms", "candidates: ms, p95", "candidates", "recall", "worst", "proven",
)  # fmt: skip


def key(row: Row) -> Key:
    return tuple(row[name] for name in ("gallery", "pictures", "system", "setting", "queries", "asked"))


def rows_of(out: Path) -> Iterator[Row]:
    if out.exists():
        yield from map(json.loads, out.read_text().splitlines())


def done(out: Path, limit_minutes: float) -> set[Key]:
    """Rows that need not be measured: those that are there, and those that would run out of time again."""
    return {
        key(row)
        for row in rows_of(out)
        if "failed" not in row or (row["failed"].startswith(OUT_OF_TIME) and row["limit_minutes"] >= limit_minutes)
    }


def add(out: Path, row: Row) -> None:
    row = row | {"threads": thread_count(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(_line(row), file=sys.stderr, flush=True)


def print_table(out: Path) -> None:
    latest = {key(row): row for row in rows_of(out)}
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for row in sorted(latest.values(), key=lambda row: (row["pictures"], row["queries"])):
        print(_line(row))


def _line(row: Row) -> str:
    known = [f"{row['pictures']:,}", f"{row['queries']} ({row['asked']})", _titled(row), row["setting"]]
    if "failed" in row:
        return f"| {' | '.join([*known, row['failed'], *[''] * (len(HEADS) - len(known) - 1)])} |"
    built = ""
    if "build_s" in row:
        some = "" if row["build_of"] == row["pictures"] else f", from {row['build_of']:,}"
        built = f"{row['build_s']:,.0f} ({row['build_processor_s']:,.0f}, {row['build_threads']}{some})"
    numbers = [
        built,
        f"{row['disk']:,.0f}",
        f"{row['memory'] / 1e6:,.0f}",
        f"{row['median_ms']:.1f}",
        f"{row['p95_ms']:.1f}",
        f"{row['processor_ms']:.1f}",
        f"{row['candidates_ms']:.1f}, {row['candidates_p95_ms']:.1f}" if "candidates_ms" in row else "",
        f"{row['candidates']:,.0f}",
        f"{row['recall']:.2%}",
        f"{row['worst']:.0%}",
        f"{row['proven']:.0%}" if "proven" in row else "",
    ]
    return f"| {' | '.join([*known, *numbers])} |"


def _titled(row: Row) -> str:
    engine = next((engine for engine in ENGINES if engine.name == row["system"]), None)
    if engine is None:
        return f"tapr {row['version']}, {row['system']}"
    return f"{engine.name} {row['version']} ({engine.form}; {engine.settings})"
