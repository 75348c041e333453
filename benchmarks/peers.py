"""Other search engines beside ours: the same vectors, machine and queries, in one run.

    python -m venv PEERS; PEERS/bin/pip install faiss-cpu usearch qdrant-edge-py pylance    # the engines
    python -m benchmarks.peers GALLERY WORK --out rows.jsonl [--size 20000] [--only full,usearch-i8] [--fewer full=20]
    python -m benchmarks.peers GALLERY WORK --out rows.jsonl --table                   # only print what is there

GALLERY has a first stage. WORK has queries.pkl (`python -m benchmarks.first_stage queries`) and room for the indexes;
an index that is there already is used again. Every finished row is added to --out, and a run that is started again
does the rows that are missing: also those that failed, or that ran out of a shorter time than --limit-minutes is now.

Ours: `full` scores every picture, `exact` proves by the first stage, `prefilter` and `budget` limit that. An engine
finds N candidates, which our exact score ranks: `score_rows`, by the kernel that a full scan uses. FAISS sees the
global vector alone, USearch and Qdrant [global vector, mean of local vectors], and Lance all local vectors. Lance's
late interaction knows neither weights nor minus signs: it is asked with the probes of positive weight, all alike, and
without the target. What is compared is how many of the exact ten are among the candidates.

Every index is built in one process and searched in another. Wall and processor times are per query, from compiled query
to top 10, one query at a time. Recall counts pictures whose exact score reaches the tenth of all. Memory is what the
process gains in anonymous pages from before the gallery and the engine are opened; mapped files come on top. Bytes on
disk are beside the gallery's own vectors. The pooled vectors are made once before, and in no engine's seconds.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peer_engines import ENGINES
from benchmarks.peer_rows import OUT_OF_TIME, add, key, print_table
from benchmarks.peer_trials import OURS, Run, build, search, version_of


def main() -> None:
    asked = _asked()
    run = Run(asked)
    if asked.child:
        (build if asked.child == "build" else search)(run, asked.system)
        return
    if asked.table:
        print_table(asked.out)
        return
    if any(engine.name in asked.only for engine in ENGINES) or not asked.only:
        _ = run.pictures
    names = [name for name in (*OURS, *(engine.name for engine in ENGINES)) if not asked.only or name in asked.only]
    if not run.truth.exists() and "exact" not in names:
        names.insert(0, "exact")
    failed = False
    for name in names:
        failed |= not _measure(run, name)
        if not run.truth.exists():
            raise SystemExit("the exact search gave no answers to hold the others to")
    print_table(asked.out)
    if failed:
        raise SystemExit(1)


def _measure(run: Run, system: str) -> bool:
    """Whether all rows of a system are there, or ran out of time."""
    rows = [run.named(system, setting, kind) for setting in run.settings(system) for kind in run.queries]
    limit = run.asked.limit_minutes
    if all(key(row) in run.done for row in rows) and (system != "exact" or run.truth.exists()):
        return True
    built = "first-stage" if system in OURS else system
    why = ""
    if system != "full" and not (run.folder / built / "built.json").exists():
        why = _child(run, "build", built)
        if why:
            shutil.rmtree(run.folder / built, ignore_errors=True)
    if not why:
        why = _child(run, "search", system)
    for row in rows:
        if why and key(row) not in run.done:
            add(run.asked.out, row | {"failed": why, "limit_minutes": limit, "version": version_of(system)})
    return not why or why.startswith(OUT_OF_TIME)


def _child(run: Run, what: str, system: str) -> str:
    """Runs a step in a process that is ended when its time is over -> why it failed; "" if it did not."""
    print(f"{datetime.now(UTC):%H:%M:%S} {system}: {what}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.peers", *sys.argv[1:], "--child", what, "--system", system]
    with subprocess.Popen(command, start_new_session=True) as child:
        try:
            code = child.wait(60 * run.asked.limit_minutes)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return f"{OUT_OF_TIME}: {what} took more than {run.asked.limit_minutes:g} minutes"
            raise
    return f"{what} ended with {code}" if code else ""


def _asked() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    def counts(text: str) -> dict[str, int]:
        return {name: int(count) for name, count in (one.split("=") for one in text.split(","))}

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="rows are added to this file, one JSON object each")
    parser.add_argument("--table", action="store_true", help="print the file's rows as a table, and measure nothing")
    systems = ", ".join((*OURS, *(engine.name for engine in ENGINES)))
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help=f"of {systems}")
    parser.add_argument("--size", type=int, help="the first so many pictures of the gallery")
    parser.add_argument("--queries", type=int, default=200, help="how many of each kind")
    parser.add_argument("--fewer", type=counts, default={}, help="fewer for slow ones: full=20,lance-multivector=50")
    parser.add_argument(
        "--limit-minutes", type=float, default=60, help="for each build, and for each search of a system"
    )
    parser.add_argument("--candidates", type=numbers, default=[100, 1000, 10_000])
    parser.add_argument("--prefilter", type=numbers, default=[128, 1000, 10_000])
    parser.add_argument("--budget-ms", type=numbers, default=[20, 50, 100, 150, 300])
    parser.add_argument("--child", choices=("build", "search"), help=argparse.SUPPRESS)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    there = len(pickle.loads((asked.work / "queries.pkl").read_bytes()))  # our own file
    asked.queries = min(asked.queries, there)
    known = {*OURS, *(engine.name for engine in ENGINES)}
    if unknown := {*asked.only, *asked.fewer} - known:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    return asked


if __name__ == "__main__":
    main()
