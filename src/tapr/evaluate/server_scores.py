"""Imports the scores that a benchmark's server gave for a submission into the run that made it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import read_json
from tapr.evaluate.metrics import Metric
from tapr.evaluate.run_files import RANKINGS, SERVER, StoredRun, write_json

# the servers' names and common spellings: mAP@5, circo_map5, R@1, recall_top_1_correct_composition, Rsubset@1,
# recall_inset_top_1_correct_composition
_NAMES = (
    ("mAP", re.compile(r"map_?@?_?(?:at_?)?(\d+)$")),
    ("Rsubset", re.compile(r"(?:recall_inset_top|recall_subset|r_?subset|r_?sub|sub)_?@?_?(\d+)$")),
    ("R", re.compile(r"(?:recall_top|recall_at|recall|r)_?@?_?(\d+)$")),
)


def import_scores(run: StoredRun, path: Path, method: str | None = None) -> dict[str, dict[str, float]]:
    """Store the scores of a file with the run. Returns method -> metric -> percent, with all scores imported so far.

    The file holds one method's scores (then `method` names it), or an object of methods. CIRR's two files are imported
    one after the other.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not content:
        raise BadInput(f'{path} must hold an object of scores, such as {{"mAP@5": 29.25}}')
    nested = all(isinstance(value, dict) for value in content.values())
    if nested and method is not None:
        raise BadInput(f"{path} names its methods itself: leave out --method")
    if not nested and method is None:
        raise BadInput(f"{path} holds the scores of one method: say of which with --method NAME")
    found = content if nested else {str(method): content}
    known = {file.stem for file in (run.folder / RANKINGS).glob("*.jsonl")}
    kept = run.server()
    for name, scores in found.items():
        if name not in known:
            raise BadInput(f"the run {str(run.folder)!r} has no method {name!r}: it has {', '.join(sorted(known))}")
        kept[name] = {**kept.get(name, {}), **_percent(_scores(scores, run, path), path)}
    write_json(run.folder / SERVER, kept)
    return kept


def _scores(scores: Mapping[str, Any], run: StoredRun, path: Path) -> dict[str, float]:
    wanted = {str(metric) for metric in run.all_metrics}
    found = {}
    for key, value in scores.items():
        name = metric_of(key)
        if name in wanted and isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    if not found:
        example = json.dumps(list(scores)[:3])
        raise BadInput(f"{path} holds no metric of this benchmark ({', '.join(sorted(wanted))}), but {example}")
    return found


def metric_of(key: str) -> str:
    """The metric that a server's key names; "" if it names none."""
    plain = re.sub(r"^(circo|cirr)_", "", key.strip().lower()).removesuffix("_correct_composition")
    for kind, pattern in _NAMES:
        match = pattern.match(plain)
        if match:
            return str(Metric.parse(f"{kind}@{match[1]}"))
    return ""


def _percent(scores: dict[str, float], path: Path) -> dict[str, float]:
    """Servers report percent or fractions. If all scores are at most 1, they are fractions."""
    if any(not 0 <= value <= 100 for value in scores.values()):
        raise BadInput(f"{path} has a score outside 0 to 100")
    share = all(value <= 1 for value in scores.values())
    return {name: 100 * value if share else value for name, value in scores.items()}
