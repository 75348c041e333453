"""The examples of README.md and docs/ run as they stand: Python, and the command lines of a folder's owner."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tapr.encoders.weights import home
from tests.pictures import flag

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
COLOURS = ("red", "blue", "green", "white", "black")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image_tower_file: Path) -> Path:
    rows = ["path,name,price"]
    for number, colour in enumerate(COLOURS):
        flag(colour, "white", size=(64, 64)).save(tmp_path / f"{colour}-dress.jpg")
        rows.append(f"{colour}-dress.jpg,{colour} dress,{40 + 10 * number}")
    (tmp_path / "products.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples(page: Path, catalogue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    found = blocks(page, "python")
    assert found
    for text in found:
        exec(compile(text, str(page), "exec"), names)
    assert "blue-dress.jpg" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_a_folder(page: Path, tmp_path: Path, image_tower_file: Path) -> None:
    """Those between `pip install .` and the end of the block, in a home folder with a few pictures."""
    (tmp_path / "Pictures").mkdir()
    for colour in COLOURS:
        flag(colour, "white", size=(64, 64)).save(tmp_path / "Pictures" / f"{colour}.png")
    flag("red", "blue", size=(64, 64)).save(tmp_path / "photo.jpg")
    (block,) = [text for text in blocks(page, "") if "pip install .\n" in text]
    lines = [line for line in block.splitlines() if line.startswith("tapr ")]
    assert len(lines) >= 2
    tapr = f"{shlex.quote(sys.executable)} -m tapr.cli.main"
    script = "set -e\n" + "\n".join(tapr + line.removeprefix("tapr") for line in lines)
    # the models stay where they are, the home folder is the test's
    places = {"HOME": str(tmp_path), "TAPR_HOME": str(home()), "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=os.environ | places, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "why.html").stat().st_size > 1000
