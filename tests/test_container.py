"""The container's files name what there is: extras, weights, verbs, and all that the build reads."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tapr.cli.main import _VERBS
from tapr.cli.models import _files_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name: str) -> str:
    if not (ROOT / name).exists():
        pytest.skip(f"{name} is not beside the tests")
    return (ROOT / name).read_text(encoding="utf-8")


def arguments() -> dict[str, str]:
    return dict(re.findall(r"^ARG (\w+)=(.*)$", text_of("Dockerfile"), re.MULTILINE))


def test_the_defaults_of_the_build_exist() -> None:
    found = arguments()
    assert set(found["EXTRAS"].split(",")) <= set(PROJECT["optional-dependencies"])
    assert all(_files_of(name) for name in found["WEIGHTS"].split())


def test_what_the_build_reads_is_not_ignored() -> None:
    lines = [line for line in text_of(".dockerignore").splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert {"pyproject.toml", "setup.py", "src", PROJECT["readme"], *PROJECT["license-files"]} <= let_in
    kept_out = [line for line in lines[1:] if not line.startswith("!")]
    assert not [
        path
        for path in ("src/tapr/explain/report.html", "src/tapr/search/kernels/native/x.cpp")
        for one in kept_out
        if fnmatch(path, one)
    ]


def test_compose_starts_verbs_that_there_are() -> None:
    commands = re.findall(r"command: \[(\w+),", text_of("compose.yaml"))
    assert commands == ["watch", "index"]
    assert set(commands) <= set(_VERBS)


def test_the_image_is_no_root_and_says_how_it_is() -> None:
    last_stage = text_of("Dockerfile").split("FROM ")[-1]
    assert re.search(r"^USER tapr$", last_stage, re.MULTILINE)
    assert "/readyz" in last_stage.split("HEALTHCHECK")[1].splitlines()[1]
