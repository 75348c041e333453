"""A second pass by a language model: rows that are marked, with their cost; resumed; failures keep the first order."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from PIL import Image

from tapr.encoders.fake import COLOURS
from tapr.errors import BadInput
from tapr.evaluate.metrics import Metric
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.second_look import numbered_sheet
from tapr.factorize.failures import ServerRefused
from tests.evaluate import made_up
from tests.evaluate.test_report import invoke
from tests.factorize.scripted_server import Request, ScriptedServer, Step, fails, says

pytest.importorskip("openai", reason="the extra `llm` is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of image only on CIRR: the right answers are near the top, seldom first."""
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    for split in ("val", "test1"):
        data = made_up.cirr(tmp_path / split, split)
        asked = ["--encoder", "fake", "--method", "image", "--method", "text", "--no-baselines", "--no-page"]
        invoke("cirr", "--data", data, "--split", split, *asked, "--no-plots", "--out", tmp_path / f"run-{split}")
    return tmp_path


def pictures(request: Request) -> list[Image.Image]:
    parts = [part for part in request["messages"][0]["content"] if part["type"] == "image_url"]
    data = (part["image_url"]["url"].partition(",")[2] for part in parts)
    return [Image.open(io.BytesIO(base64.b64decode(one))).convert("RGB") for one in data]


def text(request: Request) -> str:
    return str(request["messages"][0]["content"][-1]["text"])


def near(pixel: Any, colour: str) -> bool:
    return all(abs(one - two) < 60 for one, two in zip(pixel, COLOURS[colour], strict=True))


def halves(image: Image.Image) -> tuple[Any, Any]:
    return tuple(image.getpixel((image.width * x // 4, image.height * y // 4)) for x, y in ((1, 1), (3, 3)))  # type: ignore[return-value]


def sees(request: Request) -> Step:
    """A model that sees: 10 for the wanted flag, 3 for the others."""
    wanted = re.search(r"this change: (\w+) instead of", text(request))
    assert wanted is not None
    reference, candidate = map(halves, pictures(request))
    kept = all(abs(one - two) < 60 for one, two in zip(reference[0], candidate[0], strict=True))
    return says(json.dumps({"reason": "", "mark": 10 if kept and near(candidate[1], wanted[1]) else 3}))


def ask(run: Path, script: Callable[[Request], Step], *options: str) -> tuple[list[Request], Result]:
    with ScriptedServer(script=script) as server:
        return server.requests, invoke("rerank", run, "--llm-url", server.url, "--llm-model", "eyes", *options)


def test_a_model_that_sees_brings_the_answers_to_the_top(folder: Path) -> None:
    run = folder / "run-val"
    before = StoredRun.open(run).outcome("image")
    requests, _ = ask(run, sees, "--method", "image", "--top", "12")
    assert len(requests) == 12 * 19
    stored = StoredRun.open(run)
    after = stored.outcome("image+verify12")
    for old, new in zip(before.ranks, after.ranks, strict=True):
        assert new[0].right == ((1.0,) if old[0].right[0] <= 12 else old[0].right)
        assert new[0].subset == old[0].subset
    assert after.mean(Metric("R", 1)) > before.mean(Metric("R", 1))
    row = stored.metrics["methods"]["image+verify12"]
    assert row["multi_pass"] | {"kept_first_order": {}} == {
        "way": "verify", "top": 12, "model": "eyes", "queries": 19, "calls": 228, "tokens_in": 22800,
        "tokens_out": 2280, "kept_first_order": {},
    }  # fmt: skip
    tables = (run / "tables.md").read_text()
    assert "| Image only + verify 12 * ‡ |" in tables
    assert "| calls |" in tables
    assert "228 requests, 12.0 per query" in tables
    assert r"\ddag{}" in (run / "methods.tex").read_text()
    compared = invoke("compare", run, run, "--method", "image+verify12", "--against", "image").output
    assert "‡ multi-pass" in compared
    again, _ = ask(run, sees, "--method", "image", "--top", "12")
    assert again == []  # what it said is kept
    with pytest.raises(BadInput, match="is a second pass already"):
        ask(run, sees, "--method", "image+verify12")


def test_all_candidates_on_one_sheet_take_one_request(folder: Path) -> None:
    def backwards(request: Request) -> Step:
        assert "a sheet of 4 numbered candidates" in text(request)
        assert pictures(request)[1].size == (512, 512)
        return says('{"reason": "", "order": [4, 3]}')  # the others follow in the first order

    run = folder / "run-test1"  # its answers are hidden
    first = {row["id"]: row["top"] for row in _lines(run / "rankings" / "image.jsonl")}
    requests, _ = ask(run, backwards, "--method", "image", "--top", "4", "--way", "order")
    assert len(requests) == len(first)
    for row in _lines(run / "rankings" / "image+order4.jsonl"):
        one, two, three, four, *rest = first[row["id"]]
        assert row["top"] == [four, three, one, two, *rest]
    assert any("image+order4" in path.name for path in (run / "submissions").iterdir())
    assert "Image only + order 4 * ‡" in (run / "tables.md").read_text()


def test_a_wrong_answer_is_asked_for_again_and_then_the_first_order_stays(folder: Path) -> None:
    run, seen = folder / "run-val", list[str]()

    def odd(request: Request) -> Step:
        seen.append(str(request["messages"][-1]["content"]))
        return says('{"order": [1, 1]}')

    requests, shown = ask(run, odd, "--method", "image", "--top", "3", "--way", "order")
    assert len(requests) == 3 * 19  # three tries each
    assert sum("each once" in one for one in seen) == 2 * 19
    assert "19 queries keep the first order" in shown.output
    stored = StoredRun.open(run)
    assert stored.outcome("image+order3").ranks == stored.outcome("image").ranks
    requests, _ = ask(run, sees_order, "--method", "image", "--top", "3", "--way", "order")
    assert len(requests) == 19  # what failed is tried again


def sees_order(request: Request) -> Step:
    return says('{"reason": "", "order": [1, 2, 3]}')


def test_what_would_fail_for_every_query_stops_the_pass(folder: Path) -> None:
    with pytest.raises(ServerRefused, match="TAPR_LLM_API_KEY"):
        ask(folder / "run-val", lambda request: fails(401), "--method", "image")
    with pytest.raises(BadInput, match="no method 'tapr': it has image, text"):
        invoke("rerank", folder / "run-val")
    shown = invoke("rerank", folder / "run-val", "--method", "text", "--estimate", "--json")
    assert json.loads(shown.output)["requests"] == 190


def test_a_sheet_has_a_cell_for_every_picture() -> None:
    sheet = numbered_sheet([Image.new("RGB", (90, 30), "red"), Image.new("RGB", (30, 90), "blue")])
    assert sheet.size == (512, 256)
    assert (sheet.getpixel((128, 128)), sheet.getpixel((384, 128))) == ((255, 0, 0), (0, 0, 255))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
