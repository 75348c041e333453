"""The files of a run folder: settings, code hash, ranks and metrics."""

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
from tapr.evaluate.diagnostics import gains, solved_alone
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
    """SHA-256 over all Python files of the installed package."""
    root = Path(str(files("tapr")))
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def metrics_of(result: Result, protocol: Protocol) -> dict[str, Any]:
    """All metrics of methods and controls: the main one with its interval and, for controls, the difference to full
    TAPR.
    """
    out: dict[str, Any] = {"methods": {}, "controls": {}, "skipped": dict(result.skipped)}
    out |= {"failed": dict(result.failed), "ranked": {}}  # "ranked": methods on a split whose answers are hidden
    out["fallbacks"] = {one.name: {"label": one.label, "queries": one.without} for one in result.methods if one.without}
    if result.tuning:
        out["tuning"] = result.tuning
    own = {one.name: one for one in result.methods}
    for one in result.methods:
        # tuned methods are compared with TAPR tuned alike
        best = own.get(f"tapr{TUNED}" if one.name.endswith(TUNED) else "tapr", own.get("tapr"))
        row = method_row(one, protocol, None if best is None or one is best else best.outcome)
        out["ranked" if one.outcome is None else "methods"][one.name] = row
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


def method_row(one: MethodResult, protocol: Protocol, best: Outcome | None) -> dict[str, Any]:
    """A method's metrics and what is to be said of it. `best`: what it is compared with, TAPR."""
    said: dict[str, Any] = {"label": one.label, "ours": one.ours, "offline": one.offline}
    said |= {"multi_pass": True} if one.multi_pass else {}
    if one.outcome is None:
        return said
    row = _row(one.outcome, protocol) | said
    if one.flipped is not None:
        row["flipped"] = _row(one.flipped, protocol)
    if best is not None:
        row["tapr_minus_this"] = _difference(best, one.outcome, protocol.main)
    return row


def write_run(
    folder: Path, config: dict[str, Any], result: Result, protocol: Protocol, grid: list[float] | None = None
) -> StoredRun:
    """Write settings and metrics; the ranks are stored already. `grid`: the main metric at every grid point, if
    computed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    measured = metrics_of(result, protocol)
    if grid is not None:
        measured["grid"] = grid
    write_json(folder / CONFIG, config)
    write_json(folder / METRICS, measured)
    return StoredRun(folder, config, measured)


def write_ranking(folder: Path, result: MethodResult) -> None:
    """One method's ranks. Written as soon as it ends, so that a later failure cannot lose them."""
    _write_lines(folder / RANKINGS / f"{result.name}.jsonl", _ranking_rows(result))


def write_control(folder: Path, control: ControlResult) -> None:
    """One control's ranks; several per query if its value is a mean over several weightings."""
    outcome = control.outcome
    rows = [
        {"id": query_id, "places": ranks_to_json(places), "groups": list(groups)}
        for query_id, places, groups in zip(outcome.ids, outcome.ranks, outcome.groups, strict=True)
    ]
    _write_lines(folder / CONTROLS / f"{file_name(control.name)}.jsonl", rows)


def read_control(folder: Path, name: str, macro: bool) -> Outcome | None:
    rows = read_lines(folder / CONTROLS / f"{file_name(name)}.jsonl")
    return None if rows is None else _outcome(rows, [ranks_from_json(row["places"]) for row in rows], macro)


def read_ranking(folder: Path, method: str, macro: bool) -> StoredRanking | None:
    rows = read_lines(folder / RANKINGS / f"{method}.jsonl")
    if rows is None:
        return None

    def outcome(field: str) -> Outcome | None:
        if not all(field in row for row in rows):
            return None
        ranks = [(AnswerRanks(tuple(map(_rank, row[field])), _rank(row["subset_rank"])),) for row in rows]
        return _outcome(rows, ranks, macro)

    top = {row["id"]: row["top"] for row in rows}
    subset = {row["id"]: row["subset"] for row in rows if "subset" in row}
    return StoredRanking(top, subset, outcome("right"), outcome(_FLIPPED))


def _outcome(rows: Sequence[Mapping[str, Any]], ranks: Sequence[tuple[AnswerRanks, ...]], macro: bool) -> Outcome:
    groups = tuple(tuple(row["groups"]) for row in rows)
    return Outcome(tuple(row["id"] for row in rows), tuple(ranks), groups, macro)


@dataclass(frozen=True, eq=False)
class StoredRanking:
    """The content of a method's ranking file."""

    top: dict[str, list[str]]
    subset: dict[str, list[str]]
    outcome: Outcome | None  # None where the answers are hidden
    flipped: Outcome | None  # None: not requested


def write_specs(folder: Path, experiment: Experiment) -> None:
    """The specs of the run, as records. Figures show their atoms, and --records can read them again."""
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
    """The file name of a control: "w/o Target" becomes w-o-target."""
    return re.sub(r"[^a-z0-9.]+", "-", control.lower()).strip("-")


def ranks_to_json(places: Sequence[AnswerRanks]) -> list[Any]:
    return [[[_finite(rank) for rank in one.right], _finite(one.subset)] for one in places]


def ranks_from_json(value: Sequence[Any]) -> tuple[AnswerRanks, ...]:
    return tuple(AnswerRanks(tuple(map(_rank, right)), _rank(subset)) for right, subset in value)


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def read_lines(path: Path) -> list[Any] | None:
    """The rows of a JSONL file; None if it does not exist."""
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
    def protocol(self) -> dict[str, Any]:
        protocol: dict[str, Any] = self.config["protocol"]
        return protocol

    @property
    def dataset(self) -> str:
        return str(self.protocol["dataset"])

    @property
    def split(self) -> str:
        return str(self.protocol["split"])

    @property
    def main(self) -> Metric:
        return Metric.parse(self.protocol["main"])

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        return metrics(*self.protocol["metrics"])

    @property
    def encoder(self) -> str:
        """Return its name for titles: a checkpoint of one's own by its file's name, not by its folder."""
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
        """Method -> metric -> percent: the imported scores of the benchmark's server."""
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
        return bool(self.protocol["mean"].startswith("of the groups"))


def _ranking_rows(result: MethodResult) -> list[dict[str, Any]]:
    rows = []
    for place, (query_id, top) in enumerate(result.top.items()):
        row: dict[str, Any] = {"id": query_id}
        if result.outcome is not None:
            places = result.outcome.ranks[place][0]
            row["right"] = [_finite(rank) for rank in places.right]
            row["subset_rank"] = _finite(places.subset)
            row["groups"] = list(result.outcome.groups[place])
        if result.flipped is not None:
            row[_FLIPPED] = [_finite(rank) for rank in result.flipped.ranks[place][0].right]
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
