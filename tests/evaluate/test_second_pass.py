"""examples/second_pass.py: a marked row with its cost; resumed; failures keep the first order."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tapr.encoders.fake import COLOURS
from tapr.errors import BadInput
from tapr.evaluate.run_files import StoredRun
from tests.evaluate import made_up
from tests.evaluate.test_report import invoke
from tests.factorize.scripted_server import Request, ScriptedServer, Step, says

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

from examples import second_pass


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of image only on CIRR: the right answers are near the top, seldom first."""
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data = made_up.cirr(tmp_path / "cirr")
    invoke(
        "cirr", "--data", data, "--encoder", "fake", "--method", "image", "--no-baselines", "--out", tmp_path / "run"
    )
    return tmp_path / "run"


def sees(request: Request) -> Step:
    """Answer as a model that sees: 10 for the wanted flag, 3 for the others."""
    *pictures, text = request["messages"][0]["content"]
    wanted = re.search(r"this change: (\w+) instead of", text["text"])
    assert wanted is not None
    reference, candidate = map(halves, pictures)
    return says(
        json.dumps({"mark": 10 if near(reference[0], candidate[0]) and near(candidate[1], COLOURS[wanted[1]]) else 3})
    )


def halves(part: Any) -> list[Any]:
    data = part["image_url"]["url"].partition(",")[2]
    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    return [image.getpixel((image.width * side // 4, image.height * side // 4)) for side in (1, 3)]


def near(pixel: Any, other: Any) -> bool:
    return all(abs(first - second) < 60 for first, second in zip(pixel, other, strict=True))


def ask(run: Path, script: Callable[[Request], Step], monkeypatch: pytest.MonkeyPatch, method: str = "image") -> int:
    with ScriptedServer(script=script) as server:
        arguments = [str(run), "--method", method, "--top", "12", "--url", server.url, "--model", "eyes"]
        monkeypatch.setattr(sys, "argv", ["second_pass.py", *arguments])
        second_pass.main()
        return len(server.requests)


def test_a_model_that_sees_brings_the_answers_to_the_top(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = StoredRun.open(run).outcome("image")
    assert ask(run, sees, monkeypatch) == 12 * 19
    stored = StoredRun.open(run)
    for old, new in zip(before.ranks, stored.outcome("image+verify12").ranks, strict=True):
        assert new[0].right == ((1.0,) if old[0].right[0] <= 12 else old[0].right)
        assert new[0].subset == old[0].subset
    tables = (run / "tables.md").read_text()
    assert "| Image only + verify 12 * ‡ |" in tables
    assert "228 requests, 12.0 per query; 0 queries keep the first order" in tables
    assert r"\ddag{}" in (run / "methods.tex").read_text()
    assert "‡ multi-pass" in invoke("compare", run, run, "--method", "image+verify12", "--against", "image").output
    assert ask(run, sees, monkeypatch) == 0  # its answers are kept
    with pytest.raises(BadInput):
        ask(run, sees, monkeypatch, "image+verify12")


def test_without_a_valid_answer_the_first_order_stays(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(run, lambda request: says('{"mark": 11}'), monkeypatch) == 3 * 12 * 19  # three tries each
    stored = StoredRun.open(run)
    assert stored.outcome("image+verify12").ranks == stored.outcome("image").ranks
    assert ask(run, sees, monkeypatch) == 12 * 19  # what failed is asked again
