"""Too few records are refused, and what is accepted by name is said in every table made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tapr.cli.eval import eval as eval_command
from tapr.errors import BadInput
from tests.evaluate import made_up


def invoke(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(eval_command, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str | Path]:
    """CIRR val with its specs; a test cuts the file of records."""
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data = made_up.cirr(tmp_path / "cirr")
    made_up.specs(data)
    options = ["--encoder", "fake", "--method", "tapr", "--no-page", "--no-baselines"]
    return ["cirr", "--data", data, *options, "--out", tmp_path / "run"]


def keep(tmp_path: Path, count: int, split: str = "val") -> Path:
    path = tmp_path / "cirr" / f"specs.{split}.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))
    return path


def test_a_row_needs_records_of_half_the_queries(asked: list[str | Path], tmp_path: Path) -> None:
    records = keep(tmp_path, 1)
    with pytest.raises(BadInput, match=r"only 1 of 19 queries have usable records \(5.3 %\).*--coverage 0.052"):
        invoke(*asked, "--records", records)
    invoke(*asked, "--records", records, "--coverage", "0.052")
    assert len(json.loads((tmp_path / "run" / "metrics.json").read_text())["fallbacks"]["tapr"]["queries"]) == 18


def test_a_grid_needs_all(asked: list[str | Path], tmp_path: Path) -> None:
    records = keep(tmp_path, 18)
    with pytest.raises(BadInput, match="only 18 of 19 queries"):
        invoke(*asked, "--records", records, "--theta", "grid")
    invoke(*asked, "--records", records)


def test_a_report_needs_all_or_says_it(asked: list[str | Path], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "paper"
    invoke(*asked, "--records", keep(tmp_path, 12), "--controls", "matched")
    with pytest.raises(BadInput, match=r"the method tapr of .* only 12 of 19 queries"):
        invoke("report", run, "--out", out)
    invoke("report", run, "--out", out, "--coverage", "0.6")
    sentence = "TAPR: 7 of 19 queries"
    assert sentence in (out / "paper.md").read_text()
    assert sentence in (out / "table3.tex").read_text()


def test_a_submission_needs_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data = made_up.cirr(tmp_path / "cirr", "test1")
    made_up.specs(data, "test1")
    records, out = keep(tmp_path, 15, "test1"), tmp_path / "run"
    asked = ("cirr", "--data", data, "--split", "test1", "--encoder", "fake", "--method", "tapr", "--out", out)
    with pytest.raises(BadInput, match="only 15 of 19 queries"):
        invoke(*asked, "--records", records)
    assert not (out / "submissions").exists()
    invoke(*asked, "--records", records, "--coverage", "0.75")
    assert list((out / "submissions").iterdir())
