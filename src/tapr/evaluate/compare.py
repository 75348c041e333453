"""Compares two runs on the same queries: the difference with its confidence interval, and which settings differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.metrics import Metric
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.significance import Difference, difference

_TELLING = ("code_sha256", "protocol", "encoder", "bank", "records", "theta", "tau", "notes")


@dataclass(frozen=True)
class Comparison:
    method: str  # one name, or "a against b"
    metric: Metric
    first: float  # in percent
    second: float
    difference: Difference
    offline: bool = False  # one of the two methods uses text from the offline captioner
    multi_pass: bool = False  # one of the two asks a language model about pictures of the gallery


def compare(
    first: StoredRun,
    second: StoredRun,
    method: str | None = None,
    against: str | None = None,
    group: str | None = None,
) -> list[Comparison]:
    """Compare every metric of the methods that both runs have; or `method` of the first run with `against` of the
    second.
    """
    if first.dataset != second.dataset:
        raise BadInput("the two runs are on different datasets: compare runs of one dataset, split and protocol")
    pairs = (
        [(method, against or method)]
        if method
        else [(name, name) for name in first.methods() if name in second.methods()]
    )
    if not pairs:
        raise BadInput("the two runs have no method in common: name one with --method and --against")
    made = []
    for mine, other in pairs:
        one, two = first.outcome(mine), second.outcome(other or mine)
        if group is not None:
            one, two = one.only(group), two.only(group)
        title = mine if mine == other else f"{mine} against {other}"
        offline, multi_pass = (
            _is(first, mine, mark) or _is(second, other or mine, mark) for mark in ("offline", "multi_pass")
        )
        for metric in first.all_metrics:
            means = 100 * one.mean(metric), 100 * two.mean(metric)
            made.append(Comparison(title, metric, *means, difference(one, two, metric), offline, multi_pass))
    return made


def differences_of_config(first: StoredRun, second: StoredRun) -> dict[str, tuple[Any, Any]]:
    """The settings that differ between two runs: name -> (first, second)."""
    one, two = (_flat({name: run.config.get(name) for name in _TELLING}) for run in (first, second))
    return {key: (one.get(key), two.get(key)) for key in {**one, **two} if one.get(key) != two.get(key)}


def _is(run: StoredRun, method: str, mark: str) -> bool:
    return bool(run.metrics["methods"].get(method, {}).get(mark))


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        key: item for name, part in value.items() for key, item in _flat(part, f"{prefix}.{name}".strip(".")).items()
    }
