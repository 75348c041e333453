"""A run that is killed goes on to the same bytes; a directory never holds two runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapr.errors import BadInput
from tapr.evaluate.controls import variants
from tapr.evaluate.run import ControlResult, run_variants
from tapr.evaluate.run_files import StoredRun, read_control, write_control
from tapr.evaluate.run_folder import TIMES, ChunkFile, RunFolder, remove_chunks
from tapr.evaluate.theta import FIXED
from tests.evaluate import made_up
from tests.evaluate.scenes import random_scene
from tests.preloaded import Preloaded, preloaded

_PASSING = {TIMES, ".lock"}  # how long it took; who was at work


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Preloaded]:
    with preloaded() as made:
        yield made


def run(
    interpreter: Preloaded, folder: Path, data: Path, *more: str, dies: str = ""
) -> subprocess.CompletedProcess[str]:
    """tapr eval in a process of its own, which `dies` may bring to its end."""
    arguments = ["cirr", "--data", str(data), "--records", str(data / "specs.val.jsonl"), "--encoder", "fake"]
    arguments += ["--controls", "matched", "--controls", "tau", "--out", "run", *more]
    # a few methods of every sort; plots are drawn from metrics.json, which is compared
    arguments += [part for name in ("maxsim", "stitch", "tapr-paper", "tapr") for part in ("--method", name)]
    script = f"""
import os, signal, sys
from tapr.evaluate import run_folder, terms
terms._BUDGET = 20_000  # several groups of queries
def killed_after(count, method):
    left = [count]
    def instead(*arguments):
        method(*arguments)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return instead
{dies}
from tapr.cli.eval import eval
eval.main({arguments!r})
"""
    environment = {**os.environ, "TAPR_HOME": str(folder / "home"), "TAPR_THREADS": "1"}
    return interpreter.run(script, folder, environment)


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in _PASSING)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def killed(what: str, after: int) -> str:
    owner, _, name = what.partition(".")
    return f"run_folder.{owner}.{name} = killed_after({after}, run_folder.{owner}.{name})"


def test_a_run_that_is_killed_repeatedly_ends_with_the_same_bytes(tmp_path: Path, interpreter: Preloaded) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    made_up.specs(data)
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    finished = run(interpreter, tmp_path / "whole", data)
    assert finished.returncode == 0, finished.stderr
    undisturbed = bytes_of(tmp_path / "whole" / "run")
    assert "controls/global-shared-read.jsonl" in undisturbed
    for dies in ("RunFolder.keep_method", 3), ("ChunkFile.put", 2), ("RunFolder.keep_controls", 1):
        assert run(interpreter, tmp_path / "killed", data, dies=killed(*dies)).returncode == -signal.SIGKILL
        left = bytes_of(tmp_path / "killed" / "run")
        assert "rankings/text.jsonl" in left
        assert "metrics.json" not in left
    finished = run(interpreter, tmp_path / "killed", data)
    assert finished.returncode == 0, finished.stderr
    for part in ("method text", "controls"):
        assert f"{part}: done before" in finished.stderr
    after = bytes_of(tmp_path / "killed" / "run")
    assert after.keys() == undisturbed.keys()
    assert [name for name in after if after[name] != undisturbed[name]] == []


def test_another_run_does_not_go_into_the_same_directory(tmp_path: Path) -> None:
    with RunFolder.held(tmp_path / "run") as folder:
        assert not folder.begin({"tau": 0.02, "code": "a"})
        assert not folder.begin({"tau": 0.04, "code": "a"})  # nothing was found out yet
        (folder.path / "rankings").mkdir()
        (folder.path / "rankings" / "image.jsonl").write_text("")
        assert folder.begin({"tau": 0.04, "code": "a"})
        with pytest.raises(BadInput, match="holds another run, with other code: name another --out"):
            folder.begin({"tau": 0.04, "code": "b"})
        with pytest.raises(BadInput, match="another tapr eval is at work"), RunFolder.held(tmp_path / "run"):
            pass
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text("{}")
    with (
        RunFolder.held(tmp_path / "old") as folder,
        pytest.raises(BadInput, match="a run of an older tapr"),
    ):
        folder.begin({})


def test_a_chunk_that_was_only_partly_written_is_computed_again(tmp_path: Path) -> None:
    experiment = random_scene()
    asked = variants(["matched"])
    first = ChunkFile(tmp_path, "controls", asked)
    before = run_variants(asked, experiment, FIXED, first)
    (file,) = tmp_path.rglob("unfinished-*")
    assert len(ChunkFile(tmp_path, "controls", asked)) == 1
    file.write_bytes(file.read_bytes()[:-20])
    again = ChunkFile(tmp_path, "controls", asked)
    assert len(again) == 0
    after = run_variants(asked, experiment, FIXED, again)
    assert [one.outcome.ranks for one in before] == [one.outcome.ranks for one in after]
    assert len(ChunkFile(tmp_path, "controls", asked)) == 1
    assert len(ChunkFile(tmp_path, "controls", variants(["factors"]))) == 0  # those of other controls are none
    remove_chunks(tmp_path, "controls")
    assert not file.exists()


def test_controls_are_stored_with_all_their_weightings(tmp_path: Path) -> None:
    results = run_variants(variants(["reassign"]), random_scene(), FIXED)
    reassigned = results[1]
    assert max(len(places) for places in reassigned.outcome.ranks) > 1
    write_control(tmp_path, reassigned)
    found = read_control(tmp_path, reassigned.name, macro=False)
    assert found is not None
    assert (found.ranks, found.ids, found.groups) == (
        reassigned.outcome.ranks, reassigned.outcome.ids, reassigned.outcome.groups,
    )  # fmt: skip
    stored = StoredRun(tmp_path, {"protocol": {"mean": "over queries"}}, {})
    assert stored.control("Factor reassignment (mean)").ranks == found.ranks
    with pytest.raises(BadInput, match="has no control 'w/o Add': run it with --controls all"):
        stored.control("w/o Add")
    assert isinstance(reassigned, ControlResult)
    assert json.loads((tmp_path / "controls" / "factor-reassignment-mean.jsonl").read_text().splitlines()[0])["id"]


def refused(path: Path) -> None:
    with RunFolder.held(path) as folder:
        folder.keep_time("bank", 1.0)
        folder.begin({})
        raise BadInput("refused")


def test_a_run_that_is_refused_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="refused"):
        refused(tmp_path / "runs" / "one")
    assert list(tmp_path.iterdir()) == []
    with RunFolder.held(tmp_path / "runs" / "one") as folder:
        folder.begin({})
        folder.keep_theta(FIXED, [1.0])  # a grid is long work
    assert (tmp_path / "runs" / "one" / "begun.json").exists()
