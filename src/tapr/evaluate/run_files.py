"""The run directory: what was run, on what, with which code, and what came out; enough to check it and to go on."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.alone import solved_alone
from tapr.evaluate.gains import gains
from tapr.evaluate.metrics import AnswerRanks, Metric, Outcome, metrics, summary
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run import ControlResult, Experiment, MethodResult, Result
from tapr.evaluate.significance import Difference, difference, interval
from tapr.utils.files import write_atomically
from tapr.utils.lines import lines_of

CONFIG, METRICS, RANKINGS, CONTROLS = "config.json", "metrics.json", "rankings", "controls"
SPECS, SERVER = "specs.jsonl", "server.json"
TUNED = "-tuned"  # at the end of the name of a method whose constants were chosen
_FLIPPED = "right_flipped"  # ranks with the reference flag turned round


def code_sha256() -> str:
    """Over every Python file of the installed package, by name."""
    root = Path(str(files("tapr")))
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def metrics_of(result: Result, protocol: Protocol) -> dict[str, Any]:
    """Every method's and control's metrics, the main one with its interval and, for controls, the loss to full TAPR."""
    out: dict[str, Any] = {"methods": {}, "controls": {}, "skipped": dict(result.skipped)}
    out |= {"failed": dict(result.failed), "ranked": {}}  # ranked: of a split whose answers are hidden
    out["fallbacks"] = {one.name: {"label": one.label, "queries": one.without} for one in result.methods if one.without}
    if result.tuning:
        out["tuning"] = result.tuning
    own = {one.name: one for one in result.methods}
    for one in result.methods:
        if one.outcome is None:
            out["ranked"][one.name] = {"label": one.label, "ours": one.ours, "offline": one.offline}
            continue
        row = _row(one.outcome, protocol)
        row |= {"label": one.label, "ours": one.ours, "offline": one.offline}
        if one.flipped is not None:
            row["flipped"] = _row(one.flipped, protocol)
        # tuned methods are compared with TAPR tuned alike
        best = own.get(f"tapr{TUNED}" if one.name.endswith(TUNED) else "tapr", own.get("tapr"))
        if best is not None and best.outcome is not None and one is not best:
            row["tapr_minus_this"] = _difference(best.outcome, one.outcome, protocol.main)
        out["methods"][one.name] = row
    outcomes = {one.name: one.outcome for one in result.methods if one.outcome is not None}
    if {"image", "text"} <= outcomes.keys():
        out["alone"] = solved_alone(outcomes["image"], outcomes["text"], protocol.main)
    for control in result.controls:
        row = _row(control.outcome, protocol) | {"control": control.control}
        if control is not result.controls[0]:
            row["full_minus_this"] = _difference(result.controls[0].outcome, control.outcome, protocol.main)
        out["controls"][control.name] = row
    found = gains({one.name: one.outcome for one in result.controls}, protocol.main)
    if found:
        out["gains"] = {name: _difference_row(one) for name, one in found.items()}
    return out


def write_run(
    folder: Path, config: dict[str, Any], result: Result, protocol: Protocol, grid: list[float] | None = None
) -> StoredRun:
    """Beside the ranks, which are there already. `grid`: the main metric at every point of theta's grid, if made."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = metrics_of(result, protocol)
    if grid is not None:
        measured["grid"] = grid
    write_json(folder / CONFIG, config)
    write_json(folder / METRICS, measured)
    return StoredRun(folder, config, measured)


def write_ranking(folder: Path, result: MethodResult) -> None:
    """One method's ranks: written as it ends, so that what comes after cannot lose them."""
    _write_lines(folder / RANKINGS / f"{result.name}.jsonl", _ranking_rows(result))


def write_control(folder: Path, control: ControlResult) -> None:
    """One control's ranks; several of a query where the figure is a mean over arrangements."""
    outcome = control.outcome
    rows = [
        {"id": query_id, "places": ranks_to_json(places), "groups": list(groups)}
        for query_id, places, groups in zip(outcome.ids, outcome.places, outcome.groups, strict=True)
    ]
    _write_lines(folder / CONTROLS / f"{file_name(control.name)}.jsonl", rows)


def read_control(folder: Path, name: str, macro: bool) -> Outcome | None:
    rows = read_lines(folder / CONTROLS / f"{file_name(name)}.jsonl")
    if rows is None:
        return None
    return Outcome(
        tuple(row["id"] for row in rows),
        tuple(ranks_from_json(row["places"]) for row in rows),
        tuple(tuple(row["groups"]) for row in rows),
        macro,
    )


def read_ranking(folder: Path, method: str, macro: bool) -> StoredRanking | None:
    rows = read_lines(folder / RANKINGS / f"{method}.jsonl")
    if rows is None:
        return None

    def outcome(field: str) -> Outcome | None:
        if not all(field in row for row in rows):
            return None
        return Outcome(
            tuple(row["id"] for row in rows),
            tuple((AnswerRanks(tuple(map(_rank, row[field])), _rank(row["subset_rank"])),) for row in rows),
            tuple(tuple(row["groups"]) for row in rows),
            macro,
        )

    top = {row["id"]: row["top"] for row in rows}
    subset = {row["id"]: row["subset"] for row in rows if "subset" in row}
    return StoredRanking(top, subset, outcome("right"), outcome(_FLIPPED))


@dataclass(frozen=True, eq=False)
class StoredRanking:
    """What a file of one method's ranks holds."""

    top: dict[str, list[str]]
    subset: dict[str, list[str]]
    outcome: Outcome | None  # None where the answers are hidden
    flipped: Outcome | None  # None where it was not asked for


def write_specs(folder: Path, experiment: Experiment) -> None:
    """The specs that the run read, as records: a figure of a query shows its atoms, and --records reads them again."""
    protocol, rows = experiment.dataset.protocol, list[dict[str, Any]]()
    for query in experiment.dataset.queries:
        try:
            spec = experiment.records.spec(query.id)
        except BadInput:
            continue
        said = {"id": query.id, "edit": query.edit, "dataset": protocol.dataset, "split": protocol.split}
        rows.append({**said, "model": "as evaluated", "payload": spec.to_dict()})
    _write_lines(folder / SPECS, rows)


def file_name(control: str) -> str:
    """Controls have names for people: "w/o Target" is w-o-target."""
    return re.sub(r"[^a-z0-9.]+", "-", control.lower()).strip("-")


def ranks_to_json(places: Sequence[AnswerRanks]) -> list[Any]:
    return [[[_finite(rank) for rank in one.right], _finite(one.subset)] for one in places]


def ranks_from_json(value: Sequence[Any]) -> tuple[AnswerRanks, ...]:
    return tuple(AnswerRanks(tuple(map(_rank, right)), _rank(subset)) for right, subset in value)


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def read_lines(path: Path) -> list[Any] | None:
    """None where there is no such file."""
    if not path.is_file():
        return None
    return [json.loads(line) for line in lines_of(path.read_text(encoding="utf-8"))]


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode())


@dataclass(frozen=True, eq=False)
class StoredRun:
    folder: Path
    config: dict[str, Any]
    metrics: dict[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> StoredRun:
        folder = Path(folder)
        try:
            config, measured = (json.loads((folder / name).read_bytes()) for name in (CONFIG, METRICS))
        except OSError as error:
            raise BadInput(f"{str(folder)!r} is no run of tapr eval: cannot read {error.filename}") from None
        except ValueError as error:
            raise BadInput(f"the run {str(folder)!r} is damaged ({error})") from None
        return cls(folder, config, measured)

    @property
    def main(self) -> Metric:
        return Metric.parse(self.config["protocol"]["main"])

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        return metrics(*self.config["protocol"]["metrics"])

    @property
    def encoder(self) -> str:
        """Its name for titles: a checkpoint of one's own by its file's name, not by where it lies."""
        kind, slash, file = str(self.config["encoder"]["name"]).partition("/")
        return f"{kind}{slash}{file.rpartition('/')[2]}"

    def methods(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / RANKINGS).glob("*.jsonl"))

    def outcome(self, method: str) -> Outcome:
        found = read_ranking(self.folder, method, self.macro)
        if found is None:
            raise BadInput(f"the run {str(self.folder)!r} has no method {method!r}: it has {', '.join(self.methods())}")
        if found.outcome is None:
            raise BadInput(
                f"the run {str(self.folder)!r} is on a split whose answers are hidden: it cannot be compared"
            )
        return found.outcome

    def server(self) -> dict[str, dict[str, float]]:
        """method -> metric -> percent, as far as scores of the benchmark's server were brought back."""
        try:
            found: dict[str, dict[str, float]] = json.loads((self.folder / SERVER).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise BadInput(f"{self.folder / SERVER} is damaged ({error}): import the scores again") from None
        return found

    def control(self, name: str) -> Outcome:
        found = read_control(self.folder, name, self.macro)
        if found is None:
            raise BadInput(f"the run {str(self.folder)!r} has no control {name!r}: run it with --controls all")
        return found

    @property
    def macro(self) -> bool:
        return bool(self.config["protocol"]["mean"].startswith("of the groups"))


def _ranking_rows(result: MethodResult) -> list[dict[str, Any]]:
    rows = []
    for place, (query_id, top) in enumerate(result.top.items()):
        row: dict[str, Any] = {"id": query_id}
        if result.outcome is not None:
            places = result.outcome.places[place][0]
            row["right"] = [_finite(rank) for rank in places.right]
            row["subset_rank"] = _finite(places.subset)
            row["groups"] = list(result.outcome.groups[place])
        if result.flipped is not None:
            row[_FLIPPED] = [_finite(rank) for rank in result.flipped.places[place][0].right]
        row["top"] = top
        if query_id in result.subset:
            row["subset"] = result.subset[query_id]
        rows.append(row)
    return rows


def _row(outcome: Outcome, protocol: Protocol) -> dict[str, Any]:
    around = interval(outcome, protocol.main)
    return summary(outcome, protocol.metrics, protocol.grouped) | {"interval": [around.low, around.high]}


def _difference(first: Outcome, second: Outcome, metric: Metric) -> dict[str, Any]:
    return _difference_row(difference(first, second, metric))


def _difference_row(found: Difference) -> dict[str, Any]:
    around = found.interval
    return {"value": around.value, "interval": [around.low, around.high], "p": found.p_value,
            "wins": found.wins, "losses": found.losses}  # fmt: skip


def _finite(rank: float) -> int | None:
    return None if math.isinf(rank) else int(rank)


def _rank(value: float | None) -> float:
    return math.inf if value is None else value
