"""The example package: installed as anybody would, it works from the command line without a change to tapr."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tapr

EXAMPLE = Path(__file__).parents[1] / "examples" / "tapr-example"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("setuptools") is None:  # not imported here: it changes the process that it is loaded in
        pytest.skip("setuptools, which builds the package, is not installed")
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")  # a build leaves files behind
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "--target", str(folder / "site"), str(folder / "source")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def run(
    installed: Path, tmp_path: Path, *arguments: str | Path, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with the package on its path."""
    path = os.pathsep.join([str(installed), str(Path(tapr.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "TAPR_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tapr.cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode != 0) == fails, done.stderr
    return done


def answer(installed: Path, tmp_path: Path, *arguments: str | Path) -> Any:
    return json.loads(run(installed, tmp_path, *arguments, "--json").stdout)


def printed(installed: Path, *lines: str) -> list[str]:
    """What several command lines print, in one process of their own: starting one takes longer than what it does."""
    code = (
        "import contextlib, io, json, sys; from tapr.cli.main import main\n"
        "out = []\n"
        "for line in sys.argv[1:]:\n"
        "    sys.argv = ['tapr', *line.split()]\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit): main()\n"
        "    out.append(said.getvalue())\n"
        "print(json.dumps(out))"
    )
    path = os.pathsep.join([str(installed), str(Path(tapr.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code, *lines], capture_output=True, text=True, check=True, env=environment
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_benchmark_with_all_four(installed: Path, tmp_path: Path) -> None:
    asked = ("eval", "flags", "--encoder", "mean-colour", "--factorizer", "last-word", "--no-page")
    found = answer(installed, tmp_path, *asked, "--method", "shorter", "--method", "tapr", "--out", tmp_path / "run")
    assert set(found["metrics"]["methods"]) == {"image", "text", "sum", "target+image", "shorter", "tapr"}
    assert found["config"]["protocol"]["dataset"] == "Flags"
    assert found["config"]["encoder"]["name"] == "mean-colour"
    assert "last-word/1" in found["config"]["records"]["origin"]
    assert "shorter" in (tmp_path / "run" / "tables.md").read_text().lower()
    # by chance the right one of 11 flags is among five in 45 % of the queries
    assert found["metrics"]["methods"]["tapr"]["R@5"] > 60


def test_a_search_with_the_encoder_and_the_factorizer(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for colour in ("red", "green", "blue", "white", "black"):
        Image.new("RGB", (32, 32), colour).save(tmp_path / "pictures" / f"{colour}.png")
    run(installed, tmp_path, "index", "pictures", "-g", "bank", "--encoder", "mean-colour", "--no-captions")
    asked = (
        "search",
        "-g",
        "bank",
        "pictures/red.png",
        "make it blue",
        "--factorizer",
        "last-word",
        "--reference-weight",
        "0",
    )
    found = answer(installed, tmp_path, *asked)
    assert found["hits"][0]["id"].endswith("blue.png")
    assert found["encoder"] == "mean-colour"
    assert found["factorizer"] == "last-word/1"
    assert found["spec"]["add"] == ["blue"]


def test_the_lists_have_them_beside_ours(installed: Path) -> None:
    asked = ("eval methods --json", "models list --json", "eval --help", "factorize --help")
    listed, models, eval_help, factorize_help = printed(installed, *asked)
    methods = {row["name"]: row for row in json.loads(listed)["methods"]}
    assert methods["shorter"]["records"] == ["shorter"]
    assert "an example, not a good method" in methods["shorter"]["help"]
    assert "tapr" in methods
    assert "mean-colour" in {row["name"] for row in json.loads(models)["models"]}
    assert "flags " in eval_help
    assert "last-word" in factorize_help


def test_its_method_can_be_asked_of_a_language_model(installed: Path, tmp_path: Path) -> None:
    """Its prompt is found by the kind of its record; only the server is missing here."""
    code = "from tapr.methods.record_prompts import load_kind; print(load_kind('shorter').steps[0])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(Path(tapr.__file__).parents[1])])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "five words at most" in done.stdout
    assert "sees_picture=True" in done.stdout


def test_a_broken_package_is_said_and_the_rest_goes_on(installed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(installed, broken)
    (broken / "tapr_example" / "dataset.py").write_text("import no_such_module_anywhere\n")
    (broken / "tapr_example" / "method.py").write_text("raise RuntimeError('it rains')\n")
    wrong = run(broken, tmp_path, "eval", "flags", "--limit", "3", fails=True)
    assert wrong.returncode == 2
    assert wrong.stderr.strip() == (
        "tapr: the dataset 'flags' of the package tapr-example cannot be used (ModuleNotFoundError: No module named "
        "'no_such_module_anywhere'): mend or uninstall that package"
    )
    assert "Traceback" not in wrong.stderr
    (broken / "torch.py").write_text("raise OSError('half of it is missing')\n")  # the real one takes seconds to load
    eval_help, methods, doctor = printed(broken, "eval --help", "eval methods --json", "doctor --json")
    assert "circo" in eval_help
    listed = json.loads(methods)
    assert "shorter" not in {row["name"] for row in listed["methods"]}
    assert "RuntimeError: it rains" in listed["broken"]["shorter"]
    told = json.loads(doctor)
    assert not told["good"]  # it says that something is broken
    found = {row["name"]: row for row in told["findings"]}
    assert found["encoder mean-colour"] == {
        "name": "encoder mean-colour", "good": True, "said": "from the package tapr-example", "advice": ""
    }  # fmt: skip
    assert "torch cannot be loaded (OSError: half of it is missing)" in found["gpu"]["said"]
    assert not found["method shorter"]["good"]
    assert "it rains" in found["method shorter"]["said"]
