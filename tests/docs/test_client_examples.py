"""The examples of docs/client.md run as they stand, against a running server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("httpx", reason="the extra 'client' is not installed")

from tapr.server.settings import Settings
from tests.pictures import flag
from tests.server.conftest import ColourFactorizer, served
from tests.server.test_writing import small_gallery

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for colour in ("red", "blue"):
        flag(colour).save(tmp_path / f"{colour}.png")
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 3
    settings = Settings(port=0, write_token="a secret")
    with served(small_gallery(tmp_path / "shop"), ColourFactorizer(), settings) as server:
        names: dict[str, object] = {"url": f"http://127.0.0.1:{server.port}", "token": "a secret"}
        for text in found:
            exec(compile(text, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert "sku-1" in said
    assert "no picture with the id" in said
    assert "['bank']" in said
    assert "red dresses" in said
    assert (tmp_path / "found.jpg").stat().st_size > 1000
