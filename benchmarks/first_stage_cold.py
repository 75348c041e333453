"""The first search after a start, with files that are not in memory.

    python -m benchmarks.first_stage_cold GALLERY WORK --queries 10     # WORK/queries.pkl as for benchmarks/peers.py

Before every search the files are put out of the system's memory, and the search runs in a new process. `all`: every
file. `vectors`: only the local vectors, as in a server that has answered others for a while and whose gallery is larger
than its memory. `warm`: the same search once more in the same process. Wall times, from compiled query to top 10.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from benchmarks.first_stage import read_queries

import tapr
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import match
from tapr.store import layout

SEARCHES: dict[str, dict[str, float | str]] = {
    "exact": {"prefilter": "exact"},
    "budget_ms 100": {"budget_ms": 100.0},
}
COLD = {"all": "*.npy", "vectors": f"{layout.LOCAL}-*.npy"}


def search(folder: Path, work: Path, kind: str, number: int, name: str) -> None:
    """In a process of its own: prints the seconds of the search, cold and warm, and what it read."""
    query = read_queries(work, number + 1)[kind][number]
    gallery, kernel, seconds = tapr.Gallery.open(folder), choose_kernel(), list[float]()
    for _ in range(2):
        start = time.perf_counter()
        (found,) = match([query], gallery, 10, kernel, **SEARCHES[name])  # type: ignore[arg-type]
        seconds.append(time.perf_counter() - start)
    assert found.proof is not None
    print(json.dumps([*seconds, found.proof.read]))


def put_out(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, number, name = options.one
        return search(options.gallery, options.work, kind, int(number), name)
    print("| queries | search | cold | ms, median | largest | the same, warm | read in full |")
    print("|---|---|---|---|---|---|---|")
    for kind in ("default", "words"):
        for name in SEARCHES:
            for cold, pattern in COLD.items():
                rows = []
                for number in range(options.queries):
                    put_out(options.gallery, pattern)
                    command = [sys.executable, "-m", "benchmarks.first_stage_cold", options.gallery, options.work]
                    done = subprocess.run(
                        [*command, "--one", kind, str(number), name], check=True, capture_output=True, text=True
                    )
                    rows.append(json.loads(done.stdout))
                first, second, read = np.array(rows).T
                print(
                    f"| {kind} | {name} | {cold} | {1e3 * np.median(first):,.0f} | {1e3 * first.max():,.0f} "
                    f"| {1e3 * np.median(second):,.0f} | {np.median(read):,.0f} |",
                    flush=True,
                )
    return None


if __name__ == "__main__":
    main()
