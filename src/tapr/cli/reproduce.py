"""tapr reproduce: the commands of docs/reproduce.md for one encoder, one after the other."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tapr.cli.terminal import json_option, output, print_json, say
from tapr.errors import BadInput
from tapr.utils.files import write_atomically

_Path = click.Path(path_type=Path)
_SETS = (("circo", "val"), ("circo", "test"), ("cirr", "val"), ("cirr", "test1"), ("fashioniq", "val"))
_VALIDATIONS = tuple(dataset for dataset, split in _SETS if split == "val")
_TESTS = tuple((dataset, split) for dataset, split in _SETS if split != "val")
_CONTROLS = ("matched", "factors", "reassign", "continuity", "reward", "tau", "theta", "reference")
_STATE = "reproduce.json"  # in the folder of the runs: which steps are done, and of what


@dataclass(frozen=True)
class Plan:
    """The folders and the encoder of one reproduction."""

    data: Path
    encoder: str
    runs: Path
    records: Path

    def steps(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each step's name and its command, without the word tapr."""
        queries = self.records.parent / "queries"
        for dataset, split in _SETS:
            file = str(queries / f"{dataset}-{split}.jsonl")
            export = ["--split", split, "--export-queries", file]
            yield f"export {dataset} {split}", ["eval", dataset, "--data", str(self.data / dataset), *export]
            command = ["factorize", "--for", "all", "--batch", file, "--out", str(self.records)]
            yield f"records {dataset} {split}", command
        for dataset in _VALIDATIONS:
            options = ["--method", "tapr", "--theta", "grid", "--no-page"]
            yield f"grid {dataset}", self._eval(dataset, "val", f"grid-{dataset}", *options)
        theta = ["--theta", "joint:" + ",".join(str(self.runs / f"grid-{dataset}") for dataset in _VALIDATIONS)]
        controls = [part for control in _CONTROLS for part in ("--controls", control)]
        for dataset in _VALIDATIONS:
            options = [*controls, *theta, "--reference", "both"]
            yield f"validation {dataset}", self._eval(dataset, "val", f"{dataset}-val", *options)
        for dataset, split in _TESTS:
            yield f"test {dataset}", self._eval(dataset, split, f"{dataset}-{split}", *theta)
        folders = [str(self.runs / f"{dataset}-{split}") for dataset, split in _SETS]
        yield "report", ["eval", "report", *folders, "--out", str(self.runs / "paper")]

    def _eval(self, dataset: str, split: str, run: str, *options: str) -> list[str]:
        what = ["eval", dataset, "--data", str(self.data / dataset), "--split", split, "--encoder", self.encoder]
        return [*what, "--records", str(self.records), "--score", "paper", *options, "--out", str(self.runs / run)]

    def by_hand(self) -> list[str]:
        """Return what no command can do."""
        left = []
        for dataset, split in _TESTS:
            run = self.runs / f"{dataset}-{split}"
            if not (run / "server.json").exists():
                where = "circo.micc.unifi.it or Codabench 10055" if dataset == "circo" else "cirr.cecs.anu.edu.au"
                left.append(f"hand the files of {run / 'submissions'} in at {where}")
                left.append(f"bring the scores back: tapr eval import {shlex.quote(str(run))} SCORES.json")
        *_, (_, report) = self.steps()
        return [*left, f"write the tables again: tapr {shlex.join(report)}"] if left else []


@click.command()
@click.option("--data", required=True, type=_Path, help="The folder that holds circo/, cirr/ and fashioniq/.")
@click.option("--encoder", required=True, help="Such as open_clip:ViT-L-14/laion2b_s32b_b82k.")
@click.option("--runs", required=True, type=_Path, help="The folder for the runs of this encoder.")
@click.option("--records", type=_Path, default=Path("records.jsonl"), show_default=True, help="Made once for all.")
@click.option("--dry-run", is_flag=True, help="Only say which commands are left.")
@json_option
def reproduce(data: Path, encoder: str, runs: Path, records: Path, dry_run: bool, as_json: bool) -> None:
    """Run what docs/reproduce.md lists for one encoder: records, grids, validation, test submissions, tables.

    The same command goes on where it was stopped. The language model is the one of the settings TAPR_LLM_...
    """
    from tapr.cli.main import app

    plan = Plan(data, encoder, runs, records)
    done = _done(plan)
    left = [(name, command) for name, command in plan.steps() if name not in done]
    for number, (name, command) in enumerate([] if dry_run else left, 1):
        say(f"{number} of {len(left)}, {name}: tapr {shlex.join(command)}")
        if "--export-queries" in command:
            Path(command[-1]).parent.mkdir(parents=True, exist_ok=True)
        app.main(command, prog_name="tapr", standalone_mode=False)
        done.append(name)
        _keep(plan, done)
    by_hand = plan.by_hand()
    commands = [f"tapr {shlex.join(command)}" for name, command in left] if dry_run else []
    if as_json:
        print_json({"done": done, "left": commands, "by_hand": by_hand})
        return
    for sentence in (*commands, *(f"by hand: {sentence}" for sentence in by_hand)):
        output().print(sentence, markup=False, soft_wrap=True)


def _done(plan: Plan) -> list[str]:
    try:
        state = json.loads((plan.runs / _STATE).read_bytes())
    except FileNotFoundError:
        return []
    if state["encoder"] != plan.encoder or state["data"] != str(plan.data):
        raise BadInput(f"{plan.runs} holds runs of {state['encoder']} on {state['data']}: give --runs another folder")
    return list(state["done"])


def _keep(plan: Plan, done: list[str]) -> None:
    plan.runs.mkdir(parents=True, exist_ok=True)
    state = {"data": str(plan.data), "encoder": plan.encoder, "done": done}
    write_atomically(plan.runs / _STATE, (json.dumps(state, indent=2) + "\n").encode())
