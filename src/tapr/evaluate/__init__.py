"""Evaluation: benchmarks, metrics, controls, tables and run files, over one bank and one set of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def evaluate(
    dataset: str,
    out: str | Path,
    *,
    data: str | Path | None = None,
    search: dict[str, Any] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Run `tapr eval` and return a row per method, the best first: `pandas.DataFrame(rows)` makes a data frame of them.

    `options` are those of the command line by the names of `tapr.evaluate.request.Request`, such as split="val",
    methods=("tapr", "image") or records=("specs.jsonl",); `search` holds those of a search, such as {"tau": 0.01}.
    """
    from tapr.evaluate.request import Request
    from tapr.evaluate.session import evaluate as run
    from tapr.evaluate.tables import rows_of
    from tapr.options import RankOptions
    from tapr.utils.progress import NoProgress

    for name in ("methods", "controls"):
        if name in options:
            options[name] = tuple(options[name])
    options["records"] = tuple(map(Path, options.get("records", ())))
    asked = RankOptions.of(**(search or {}))
    request = Request(dataset, Path(out), data=None if data is None else Path(data), options=asked, **options)
    return rows_of(run(request, NoProgress()))
