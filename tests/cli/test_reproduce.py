"""tapr reproduce on a miniature of the three benchmarks, with a scripted language model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tapr.cli.main import app
from tapr.errors import BadInput
from tests.evaluate.miniature import answer, draw_all
from tests.factorize.scripted_server import ScriptedServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("httpx", reason="asking a server needs the extra `llm`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAPR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TAPR_LLM_MODEL", "m")
    draw_all(tmp_path / "data")
    return tmp_path


def reproduce(*options: str) -> dict[str, list[str]]:
    asked = ["reproduce", "--data", "data", "--encoder", "fake", "--runs", "runs", *options, "--json"]
    result = CliRunner().invoke(app, asked)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    shown: dict[str, list[str]] = json.loads(result.stdout[result.stdout.rindex('{\n  "done"') :])
    return shown


def test_all_steps_run_once_and_what_is_left_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = reproduce("--dry-run")
    assert before["done"] == []
    assert len(before["left"]) == 19
    with ScriptedServer(script=answer) as server:
        monkeypatch.setenv("TAPR_LLM_BASE_URL", server.url)
        done = reproduce()["done"]
    assert len(done) == 19
    for name in ("table1", "table2", "table3", "table4", "table5"):
        assert (home / "runs" / "paper" / f"{name}.csv").stat().st_size > 0
    assert list((home / "runs" / "circo-test" / "submissions").iterdir())
    after = reproduce("--dry-run")  # no server: nothing is left
    assert after["left"] == []
    assert any("Codabench 10055" in sentence for sentence in after["by_hand"])
    state = json.loads((home / "runs" / "reproduce.json").read_text())
    (home / "runs" / "reproduce.json").write_text(json.dumps({**state, "done": state["done"][:-1]}))
    assert reproduce()["done"] == done  # a stopped run goes on: the report alone is made again
    with pytest.raises(BadInput):
        CliRunner().invoke(
            app, ["reproduce", "--data", "data", "--encoder", "other", "--runs", "runs"], catch_exceptions=False
        )
